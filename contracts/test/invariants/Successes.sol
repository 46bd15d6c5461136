// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Checks} from "./Checks.sol";
import {recorder} from "./Recorder.sol";

/// @title Successes: number of successes of each verb, over all runs of a campaign
/// @notice The chain is reset between runs, so the sums are kept in the environment of the process. After `ENOUGH` runs, a verb
/// that never succeeded fails the suite: a handler that always reverts proves nothing. Successes while the market is wound up
/// after a run are not counted.
abstract contract Successes is Checks {
    uint256 private constant ENOUGH = 200;
    string private constant RUNS = "ASSIZE_INVARIANT_RUNS";

    string private constant HONEST = "register|topUp|restore|retire|withdraw|rotateKey|revokeKey|renewKeys|join|leave|redeem|"
        "openRun|buy|fund|announce|rejoin|serve|closeRun|refund|publish|open|submit|submit part|submit spoiled|commit|reveal|abstain|copy|"
        "vote together|advance|judge next|appeal and judge|settle before the appeal|appeal against accept|appeal against fraud|appeal against void|appeal against unavailable|"
        "verdict upheld|verdict overturned|appeal undecided|appellant awarded|close|close empty|draw|draw late|tally|redraw|settle|"
        "finish|free|expire|sweep|donate|wait|lapse|pause|unpause|setTreasury|begin to pass office|take office|appoint a pauser";
    string private constant REFUSED = "withdraw early|withdraw in flight|replay a binding|redeem more than one has|announce rules used before|"
        "refund an open run|fund a closed run|refund what is reserved|consume twice|consume what was not accepted|"
        "consume another run's|open over capacity|submit twice|submit late|commit twice|reveal twice|reveal a copy|reveal late|"
        "appeal where none is offered|appeal late|appeal twice|expire early|close early|tally early|settle early|settle twice|"
        "finish early|free twice|open while paused|set no treasury|take office early|appoint out of office|slash|award|reserve jobs|"
        "free jobs|lock|unlock|earn|earn all|grant|reserve|release|pay|pay all|deposit|pay out|strike|consume|retire another's|withdraw another's|"
        "revoke another's|rotate another's|leave another's|close another's|fund another's|refund another's|publish another's|"
        "redeem nothing|redeem to nobody|open another's|pause as anyone|unpause as anyone|name a treasury|bind another's key|hold both roles|"
        "join at other rules|close a closed|draw undrawable|tally untallied|finish the unfinished|free the living|"
        "expire the decided|commit unseated|reveal unseated|close with other assignments|free with other assignments";

    function countSuccesses() internal {
        uint256 made = _add(RUNS, 1);
        bytes32[] memory verbs = parties.allVerbs();
        for (uint256 i; i < verbs.length; ++i) {
            _add(_named(verbs[i]), parties.done(verbs[i]));
        }
        _add("verdict upheld", chronicle.upheld());
        _add("verdict overturned", chronicle.overturned());
        _add("appeal undecided", chronicle.undecided());
        _add("appellant awarded", chronicle.granted());
        string memory path = recorder.envOr("ASSIZE_SUCCESSES", string(""));
        if (bytes(path).length != 0) recorder.writeFile(path, _table(made));
        if (made >= ENOUGH) everyVerbSucceeded();
    }

    function everyVerbSucceeded() private view {
        string[] memory verbs = _expected();
        for (uint256 i; i < verbs.length; ++i) {
            vm.assertTrue(_sum(verbs[i]) != 0, string.concat("never succeeded: ", verbs[i]));
        }
    }

    function _table(uint256 made) private view returns (string memory lines) {
        lines = string.concat("runs\t", recorder.toString(made), "\n");
        string[] memory verbs = _expected();
        for (uint256 i; i < verbs.length; ++i) {
            lines = string.concat(lines, verbs[i], "\t", recorder.toString(_sum(verbs[i])), "\n");
        }
    }

    function _expected() private pure returns (string[] memory) {
        return recorder.split(string.concat(HONEST, "|", REFUSED), "|");
    }

    function _sum(string memory verb) private view returns (uint256) {
        return recorder.envOr(verb, uint256(0));
    }

    function _add(string memory verb, uint256 more) private returns (uint256 sum) {
        sum = _sum(verb) + more;
        recorder.setEnv(verb, recorder.toString(sum));
    }

    function _named(bytes32 verb) private pure returns (string memory name) {
        uint256 length;
        while (length < 32 && verb[length] != 0) ++length;
        name = string(abi.encodePacked(verb));
        assembly ("memory-safe") {
            mstore(name, length)
        }
    }
}
