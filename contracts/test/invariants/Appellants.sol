// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IRoundsFacts, ISettlement, Round, State} from "../../src/interfaces/IRounds.sol";
import {World} from "./World.sol";

/// @title Appellants: parties that appeal verdicts, rightly or not
abstract contract Appellants is World {
    address internal constant APPELLANT = address(0xA99);

    /// Appeals the verdict on one job; successes are counted by that verdict.
    function appeal(uint256 pick, uint256 which) external told {
        uint256 round = _roundIn(State.Tallied, pick);
        _appealAny(round, which);
    }

    /// Leaves nothing to appeal, or appeals.
    function _appealAny(uint256 round, uint256 which) internal returns (bool) {
        Round memory stored = rounds.roundOf(round);
        (bool found, uint8 batch, uint8 job) = _unsettledJob(round, stored.submitted & ~stored.appealed, which);
        if (!found) return false;
        uint256 fees = uint256(stored.jurorFee) * (stored.appealSeats + 3 * (uint256(stored.appealSeats) / 2));
        if (credits.balanceOf(APPELLANT) < APPEAL_BOND + fees) buy(APPELLANT, APPEAL_BOND + fees);
        bytes memory call = abi.encodeCall(ISettlement.appeal, (round, job, batch, chronicle.batchOf(round, batch)));
        if (stored.appealSeats == 0) {
            _refused(
                "appeal where none is offered",
                APPELLANT,
                address(rounds),
                call,
                IRoundsFacts.AppealsNotOffered.selector
            );
            return false;
        }
        uint256 voting = 4 * (uint256(stored.drawSeconds) + stored.commitSeconds + stored.revealSeconds);
        if (block.timestamp >= stored.deadline || block.timestamp + voting > _endsBy(stored)) {
            _refused("appeal late", APPELLANT, address(rounds), call, IRoundsFacts.TooLate.selector);
            return false;
        }
        _due(_against(stored, job), APPELLANT, address(rounds), call);
        _refused("appeal twice", APPELLANT, address(rounds), call, IRoundsFacts.AlreadyAppealed.selector);
        return true;
    }

    function _against(Round memory stored, uint8 job) private pure returns (bytes32) {
        (bool accepted, bool fraud) = ((stored.accepted >> job) & 1 == 1, (stored.fraud >> job) & 1 == 1);
        if (accepted) return fraud ? bytes32("appeal against unavailable") : bytes32("appeal against accept");
        return fraud ? bytes32("appeal against fraud") : bytes32("appeal against void");
    }

    /// One of `jobs` in a batch not settled yet.
    function _unsettledJob(uint256 round, uint256 jobs, uint256 which)
        private
        view
        returns (bool found, uint8 batch, uint8 job)
    {
        uint256 batches = rounds.roundOf(round).batches;
        for (; batch < batches; ++batch) {
            if (rounds.batchDigest(round, batch) == 0) continue;
            job = _jobIn(chronicle.batchOf(round, batch), which);
            if ((jobs >> job) & 1 == 1) return (true, batch, job);
        }
    }

    /// One of the jobs of a packed batch.
    function _jobIn(bytes memory parts, uint256 which) private pure returns (uint8) {
        bytes memory jobs;
        for (uint256 at; at < parts.length;) {
            uint256 end = at + 5 + 41 * uint256(uint8(parts[at + 4]));
            for (at += 5; at < end; at += 41) {
                jobs = bytes.concat(jobs, parts[at]);
            }
        }
        return uint8(jobs[which % jobs.length]);
    }
}
