"""Group commit: what comes at once is written together, and answered each for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from coordinator.api.group_commit import MOST_AT_ONCE, GroupCommit
from protocol.errors import Rejected, Unavailable


class Written:
    """Groups that were committed; any with a number in ``bad`` fails, and all do while ``down``."""

    def __init__(self, bad: Sequence[int] = (), down: bool = False) -> None:
        self.groups: list[list[int]] = []
        self.tries = 0
        self._bad, self._down = set(bad), down

    def write(self, numbers: Sequence[int]) -> list[str]:
        self.tries += 1
        if self._down:
            raise Unavailable("the database does not answer")
        if self._bad & set(numbers):
            raise Rejected("bad number")
        self.groups.append(list(numbers))
        return [f"number {number}" for number in numbers]


def answers(written: Written, numbers: Sequence[int]) -> list[str | BaseException]:
    async def added() -> list[str | BaseException]:
        commit = GroupCommit(written.write)
        return await asyncio.gather(*map(commit.add, numbers), return_exceptions=True)

    return asyncio.run(added())


def test_items_that_come_at_once_are_written_in_few_groups_and_each_gets_its_own_answer() -> None:
    written, numbers = Written(), range(2 * MOST_AT_ONCE + 1)
    assert answers(written, numbers) == [f"number {number}" for number in numbers]
    assert [len(group) for group in written.groups] == [MOST_AT_ONCE, MOST_AT_ONCE, 1]


def test_an_item_that_cannot_be_written_fails_alone() -> None:
    written = Written(bad=[2])
    one, bad, three = answers(written, [1, 2, 3])
    assert (one, str(bad), three) == ("number 1", "bad number", "number 3")


def test_a_database_that_does_not_answer_is_told_to_all_after_one_try() -> None:
    written = Written(down=True)
    assert {type(each) for each in answers(written, [1, 2, 3])} == {Unavailable}
    assert written.tries == 1


def test_items_are_written_though_another_that_waited_with_them_was_given_up() -> None:
    written = Written()

    async def added() -> str:
        commit = GroupCommit(written.write)
        given_up, other = asyncio.create_task(commit.add(1)), asyncio.create_task(commit.add(2))
        await asyncio.sleep(0)
        given_up.cancel()
        return await other

    assert asyncio.run(added()) == "number 2"
    assert written.groups == [[1, 2]]
