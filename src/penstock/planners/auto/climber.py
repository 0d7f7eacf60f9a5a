"""One climber of the planner auto: random changes of a plan, then shifts of its cuts."""

from penstock.plan import Plan
from penstock.planners.auto.moves import shifted_cuts
from penstock.planners.auto.search_state import SearchState
from penstock.schedules.search import Score

TOLERANCE = 0.05
"""By which fraction a change may make a plan slower and still be kept, at the start of the search."""


class Climber:
    """Changes a plan at random and keeps improvements; at first also small losses, to escape local optima."""

    def __init__(self, search: SearchState, plan: Plan, score: Score) -> None:
        self._search = search
        self._moves = search.moves()
        self._current, self._current_score = plan, score
        self.plan, self.score = plan, score

    def climb(self, progress: float) -> None:
        """Try one change; `progress` is the completed fraction of the search."""
        search = self._search
        if search.stopped:
            return
        changed = self._moves.draw(self._current)
        if changed is None or not search.allows(changed):
            search.report_progress()
            return
        limit = Score(self._current_score.over_bytes, self._current_score.seconds * (1 + TOLERANCE * (1 - progress)))
        score = search.score(changed, limit)
        if score < limit:
            self._current, self._current_score = changed, score
        if score < self.score:
            self.plan, self.score = changed, score
        elif self._current_score.seconds > self.score.seconds * (1 + 2 * TOLERANCE):
            self._current, self._current_score = self.plan, self.score

    def settle(self, most: int) -> None:
        """Shift one cut at a time as long as that helps, with at most `most` evaluations."""
        tries = 0
        improved = True
        while improved and not self._search.stopped:
            improved = False
            for changed in shifted_cuts(self.plan):
                if tries >= most:
                    return
                if changed.stages in self._search.seen or not self._search.allows(changed):
                    continue
                tries += 1
                score = self._search.score(changed, self.score)
                if score < self.score:
                    self.plan, self.score = changed, score
                    improved = True
                    break
