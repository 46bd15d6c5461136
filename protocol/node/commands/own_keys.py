"""A person's keys under one password: opened, made where they are missing, and named before either."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from protocol.errors import Misconfigured
from protocol.node.commands.asking import Questions
from protocol.node.profile import Profile
from protocol.node.wallet import Keystores, Wallet, read_password


class OwnKeys:
    """An owner's wallet and the keys beside it.

    Args:
        profile: its password file opens its own keystore.
        wallet: keystore of the owner, a name or a file.
        password_file: file with the password, as typed; None if it was not.
        ask: whether a person may be asked for the password.
        say: told of keys that are made.
    """

    def __init__(
        self, profile: Profile, wallet: str, password_file: Path | None, ask: Questions, say: Callable[[str], None]
    ) -> None:
        self.keystores = Keystores()
        self.profile, self.wallet, self.password_file, self.ask, self.say = profile, wallet, password_file, ask, say
        self._password: str | None = None

    def password(self) -> str:
        """Returns the password of all keys, which is asked for once, twice over if it is new.

        Raises:
            Misconfigured: there is nobody to ask, or a file cannot be read.
        """
        if self._password is None:
            self._password = self._read_password()
        return self._password

    def opened(self, name: str) -> Wallet:
        """Opens a key, which is made if it is missing.

        Raises:
            Misconfigured: the password is wrong, or the keystore invalid.
        """
        if self.exists(name):
            return self.keystores.open(name, self.password())
        made = self.keystores.create(name, self.password())
        self.say(f"made key {name}, {made.address}")
        return made

    def stated(self, name: str) -> str | None:
        """Returns a key's address; None before it is made, or if its keystore states none."""
        return self.keystores.stated_address(name) if self.exists(name) else None

    def described(self, name: str) -> str:
        """Returns a key's name and address, as shown before it is opened or made."""
        absent = "address shown by its password" if self.exists(name) else "made now"
        return f"{name}, {self.stated(name) or absent}"

    def exists(self, name: str) -> bool:
        """Returns whether there is such a keystore; a file is taken to be there."""
        return os.sep in name or name in (*self.keystores.names(), *self.keystores.foundry_names())

    def _read_password(self) -> str:
        own = self.profile.keystore
        profiled = self.profile.wallet().get("password_file") if own and placed(own) == self.wallet else None
        told = self.password_file or profiled
        if told is not None or self.exists(self.wallet):
            return read_password(told, f"password of {self.wallet}")
        if self.ask.yes:
            raise Misconfigured("missing the password: --yes asks nothing: give --password-file FILE")
        first = read_password(None, f"new password for {self.wallet} and the keys beside it")
        if read_password(None, "the same again") != first:
            raise Misconfigured("the two passwords differ: type the command again")
        return first


def placed(keystore: str) -> str:
    """Returns a keystore as it is found from any folder: a name as it is, a file by its absolute path."""
    return os.path.abspath(os.path.expanduser(keystore)) if os.sep in keystore else keystore
