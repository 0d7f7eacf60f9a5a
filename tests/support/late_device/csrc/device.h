// Makes the device known to torch.
#pragma once

namespace late {

// Registers guards, hooks and the allocator.
void register_device();

}  // namespace late
