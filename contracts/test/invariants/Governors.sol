// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Admin} from "../../src/Admin.sol";
import {IAdmin} from "../../src/interfaces/IAdmin.sol";
import {IJudgement, IRoundsFacts} from "../../src/interfaces/IRounds.sol";
import {World} from "./World.sol";

/// @title Governors: the admin and the pauser, with all the power they have
abstract contract Governors is World {
    /// Mostly for a moment only, so that runs go on.
    function pause(uint256 pick) external told {
        require(!admin.paused(), "paused");
        _do("pause", governor, address(admin), abi.encodeCall(Admin.pause, ()));
        bytes memory open = abi.encodeCall(IJudgement.open, (_anyRun(pick), 1, 0, listing(workers[0], 1)));
        _refused("open while paused", coordinator, address(rounds), open, IRoundsFacts.NewRoundsPaused.selector);
        if (pick % 4 != 0) _do("unpause", governor, address(admin), abi.encodeCall(Admin.unpause, ()));
    }

    function unpause() public told {
        require(admin.paused(), "not paused");
        _do("unpause", governor, address(admin), abi.encodeCall(Admin.unpause, ()));
    }

    function setTreasury(uint256 pick) external told {
        address to = address(uint160(0x7EA500 + pick % 4));
        _meet(to);
        _do("setTreasury", governor, address(admin), abi.encodeCall(Admin.setTreasury, (to)));
        bytes memory none = abi.encodeCall(Admin.setTreasury, (address(0)));
        _refused("set no treasury", governor, address(admin), none, IAdmin.NoTreasury.selector);
    }

    /// The office passes on after its delay, not before.
    function passOffice(uint256 pick) external told {
        address next = address(uint160(0x60F00 + pick % 1000));
        bytes memory begin = abi.encodeWithSignature("beginDefaultAdminTransfer(address)", next);
        bytes memory accept = abi.encodeWithSignature("acceptDefaultAdminTransfer()");
        require(next != governor && pick % 4 == 0, "spared");
        _do("begin to pass office", governor, address(admin), begin);
        _refused("take office early", next, address(admin), accept);
        _warpTo(block.timestamp + ADMIN_DELAY + 1);
        _do("take office", next, address(admin), accept);
        bytes32 pauser = admin.PAUSER();
        bytes memory appoint = abi.encodeWithSignature("grantRole(bytes32,address)", pauser, next);
        _refused("appoint out of office", governor, address(admin), appoint);
        _do("appoint a pauser", next, address(admin), appoint);
        governor = next;
        _meet(next);
    }
}
