// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Role} from "../src/interfaces/IRegistry.sol";

import {Draw} from "../src/libraries/Draw.sol";
import {Scenario, Submission} from "./Scenario.sol";

/// @title Golden vectors that Python shares
/// @notice Everything rendered here went through the contracts: the signatures were accepted by them, the commitment was
/// opened, the digest is theirs. WRITE_VECTORS=true writes the file anew; otherwise it must be what is rendered.
contract VectorsTest is Scenario {
    string private constant PATH = "../tests/vectors/contracts.json";

    /// JSON rendered so far, field by field, as one long concatenation is too deep for the stack.
    string private _json;

    function test_goldenVectorsAreWhatTheContractsCompute() public {
        _json = "{\n";
        _renderBinding();
        _renderSubmission();
        _renderBatch();
        _renderCommitment();
        _renderDraws();
        if (vm.envOr("WRITE_VECTORS", false)) vm.writeFile(PATH, _json);
        vm.assertEq(vm.readFile(PATH), _json);
    }

    function _renderBinding() private {
        (address owner, uint256 key) = (address(0xA11CE), uint256(keccak256("vector key")));
        uint256 deadline = block.timestamp + 3600;
        bytes32 digest = bindingDigest(owner, vm.addr(key), Role.Worker, 3, deadline);
        bytes memory signature = signed(key, digest);
        give(owner, 3 * BOND_PER_JOB, address(registry));
        vm.prank(owner);
        registry.register(Role.Worker, vm.addr(key), 3, deadline, signature);
        _add('  "node_binding": {\n');
        _number("chainId", block.chainid);
        _text("registry", vm.toString(address(registry)));
        _text("owner", vm.toString(owner));
        _text("key", vm.toString(vm.addr(key)));
        _number("role", uint256(Role.Worker));
        _number("capacity", 3);
        _number("deadline", deadline);
        _text("signature", vm.toString(signature));
        _last("digest", vm.toString(digest));
    }

    function _renderSubmission() private {
        uint256 round = openRound(fourEach());
        Submission[] memory items = bothSubmissions(round, 12_345);
        rounds.submit(round, fourEach(), packed(items));
        Submission memory item = items[0];
        _add('  "submission": {\n');
        _place(round);
        _text("assignments", vm.toString(fourEach()));
        _number("node", item.node);
        _text("signer", vm.toString(keyAddress(item.node)));
        _text("beacon", vm.toString(item.beacon));
        _text("leaves", vm.toString(item.leaves));
        _text("uri", item.uri);
        _text("signature", vm.toString(item.signature));
        _last("digest", vm.toString(submissionDigest(round, item.node, item.beacon, item.leaves, item.uri)));
    }

    function _renderBatch() private {
        Submission[] memory batch = bothSubmissions(1, 12_345);
        _add('  "batch": {\n    "submissions": [');
        for (uint256 i; i < batch.length; ++i) {
            if (i != 0) _add(", ");
            _add(string.concat("[", vm.toString(uint256(batch[i].node)), ', "', vm.toString(batch[i].leaves)));
            _add(string.concat('", "', vm.toString(batch[i].beacon), '", "', batch[i].uri, '", "'));
            _add(string.concat(vm.toString(batch[i].signature), '"]'));
        }
        _add("],\n");
        _text("signed", vm.toString(packed(batch)));
        _text("taken", vm.toString(settled(batch)));
        _last("digest", vm.toString(rounds.batchDigest(1, 0)));
    }

    function _renderCommitment() private {
        uint256 round = 1;
        closeDue(round, fourEach());
        mine(1);
        rounds.draw(round);
        uint32 juror = jurorsOf(round)[0];
        bytes memory reasons = hex"0507";
        bytes32 commitment = commitmentOf(round, juror, 0xfc, 2, reasons);
        commitVote(round, juror, 0xfc, 2, reasons);
        pass(201);
        revealVote(round, juror, 0xfc, 2, reasons);
        _add('  "commitment": {\n');
        _place(round);
        _number("attempt", 0);
        _number("juror", juror);
        _number("accept", 0xfc);
        _number("fraud", 2);
        _text("reasons", vm.toString(reasons));
        _text("evidenceRoot", vm.toString(EVIDENCE));
        _text("salt", vm.toString(SALT));
        _last("commitment", vm.toString(commitment));
    }

    function _renderDraws() private {
        _add('  "draws": [\n');
        _draw(keccak256("seed 0"), 0, 3, 7, 3);
        _add(",\n");
        _draw(keccak256("seed 1"), 1, 256, type(uint256).max, 15);
        _add(",\n");
        _draw(keccak256("seed 2"), 0, 100, 0x1248000000000012480000000, 5);
        _add(",\n");
        _draw(bytes32(0), 0, 256, (uint256(1) << 255) | 5, 3);
        _add("\n  ]\n}\n");
    }

    function _draw(bytes32 seed, uint8 attempt, uint16 slotCount, uint256 eligible, uint8 seats) private {
        _add(string.concat('    {"seed": "', vm.toString(seed), '", "attempt": ', vm.toString(uint256(attempt))));
        _add(string.concat(', "slotCount": ', vm.toString(uint256(slotCount)), ', "eligible": "'));
        _add(string.concat(vm.toString(bytes32(eligible)), '", "seats": ', vm.toString(uint256(seats)), ', "slots": ['));
        uint8[] memory drawn = Draw.slots(seed, attempt, slotCount, eligible, seats);
        for (uint256 i; i < seats; ++i) {
            _add(string.concat(i == 0 ? "" : ", ", vm.toString(uint256(drawn[i]))));
        }
        _add("]}");
    }

    function _place(uint256 round) private {
        _number("chainId", block.chainid);
        _text("rounds", vm.toString(address(rounds)));
        _number("round", round);
    }

    function _number(string memory name, uint256 value) private {
        _add(string.concat('    "', name, '": ', vm.toString(value), ",\n"));
    }

    function _text(string memory name, string memory value) private {
        _add(string.concat('    "', name, '": "', value, '",\n'));
    }

    function _last(string memory name, string memory value) private {
        _add(string.concat('    "', name, '": "', value, '"\n  },\n'));
    }

    function _add(string memory text) private {
        _json = string.concat(_json, text);
    }
}
