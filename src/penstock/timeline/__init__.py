"""What happened when, simulated or measured, and what it means."""
