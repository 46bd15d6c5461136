"""Keys on disk, and their signatures. The only module that reads private keys.

Keystores are Ethereum's version 3 (scrypt), one file per name, in a directory with mode 0700:

    ~/.assize/keystores/          0700
        alice.json                0600, {"address": ..., "crypto": {...}, "id": ..., "version": 3}

A keystore is named, or given as a file. Names are looked up here, then in Foundry's `~/.foundry/keystores`; files of
Foundry, Geth and Ape are opened as they are. A private key is never printed, logged or returned.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import secrets
from pathlib import Path
from typing import Any

from protocol.errors import Misconfigured, Rejected
from protocol.node.profile import Profile

KEYSTORE_DIRECTORY_VARIABLE = "ASSIZE_KEYSTORE_DIR"

SCRYPT_N = 2**17
"""Cost of one password guess: 0.4 s and 128 MiB, as OWASP recommends for scrypt."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class Wallet:
    """One opened key, which signs EIP-712 messages and transactions."""

    def __init__(self, name: str, private_key: bytes) -> None:
        from eth_account import Account

        self.name = name
        self._account = Account.from_key(private_key)

    @property
    def address(self) -> str:
        """Checksummed address of the key."""
        return str(self._account.address)

    def sign_typed(self, message: dict[str, Any]) -> bytes:
        """Returns the 65-byte signature r ‖ s ‖ v of a full EIP-712 message."""
        from eth_account.messages import encode_typed_data

        return bytes(self._account.sign_message(encode_typed_data(full_message=message)).signature)

    def sign_transaction(self, transaction: dict[str, Any]) -> bytes:
        """Returns the raw signed transaction."""
        return bytes(self._account.sign_transaction(transaction).raw_transaction)

    def __repr__(self) -> str:
        return f"Wallet({self.name!r}, {self.address})"


class Keystores:
    """A directory of keystores.

    Args:
        directory: None takes ``ASSIZE_KEYSTORE_DIR``, else the profile's, else ``~/.assize/keystores``.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory or default_directory()

    def create(self, name: str, password: str, scrypt_n: int = SCRYPT_N) -> Wallet:
        """Makes a new key and stores it under ``name``.

        Raises:
            Misconfigured: the name is taken or invalid, or the directory cannot be written.
        """
        return self.keep(name, secrets.token_bytes(32), password, scrypt_n)

    def keep(self, name: str, private_key: bytes, password: str, scrypt_n: int = SCRYPT_N) -> Wallet:
        """Stores an existing 32-byte key under ``name``.

        Raises:
            Rejected: the key is invalid.
            Misconfigured: see ``create``.
        """
        from eth_account import Account

        path = self._path(name)
        try:
            wallet = Wallet(name, private_key)
        except Exception as error:  # eth_account raises many kinds, some with the key in their text
            raise Rejected(
                f"invalid private key of {len(private_key)} bytes: expected 32 bytes below the curve order"
            ) from error.with_traceback(None)
        encrypted = Account.encrypt(private_key, password, kdf="scrypt", iterations=scrypt_n)
        _write_private(path, json.dumps(encrypted))
        return wallet

    def open(self, name: str, password: str) -> Wallet:
        """Opens the key stored under ``name``.

        Raises:
            Misconfigured: the keystore is missing or invalid, or the password is wrong.
        """
        return Wallet(Path(name).stem, self._decrypted(name, password))

    def adopt(self, name: str, file: Path, its_password: str, password: str) -> Wallet:
        """Stores the key of another tool's keystore under ``name`` with a password of its own; raises as ``create``."""
        return self.keep(name, self._decrypted(str(file.absolute()), its_password), password)

    def export(self, name: str, out: Path) -> None:
        """Copies a keystore as it is to a file that only its owner can read.

        Raises:
            Misconfigured: the keystore is missing, or the file exists or cannot be written.
        """
        content = json.dumps(self._load(name)) + "\n"
        try:
            with os.fdopen(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(content)
        except FileExistsError:
            raise Misconfigured(f"{out} exists: give another file") from None
        except OSError as error:
            raise Misconfigured(f"cannot write {out}: {error.strerror}") from error

    def _decrypted(self, name: str, password: str) -> bytes:
        from eth_account import Account

        keystore = self._load(name)
        try:
            return bytes(Account.decrypt(keystore, password))
        except ValueError as error:
            if "MAC" in str(error):
                raise Misconfigured(
                    f"wrong password for keystore {name}; give the file that holds it with --password-file"
                ) from None
            raise Misconfigured(f"{self._place(name)} is not a version 3 keystore: {error}") from None
        except (KeyError, TypeError, NotImplementedError) as error:
            raise Misconfigured(f"{self._place(name)} is not a version 3 keystore: {error!r}") from None

    def names(self) -> list[str]:
        """Returns the names of all keystores of its own, sorted."""
        return sorted(path.stem for path in self.directory.glob("*.json"))

    def foundry_names(self) -> list[str]:
        """Returns the names of Foundry's keystores that none of its own has, sorted."""
        folder = foundry_directory()
        found = {path.name for path in folder.iterdir() if path.is_file()} if folder.is_dir() else set()
        return sorted(name for name in found if _NAME.fullmatch(name) and name not in self.names())

    def address_of(self, name: str) -> str:
        """Returns the address of a key, which needs no password.

        Raises:
            Misconfigured: the keystore is missing or invalid, or does not state it, as Foundry's do not.
        """
        stated = self.stated_address(name)
        if stated is None:
            raise Misconfigured(f"{self._place(name)} does not state its address; see: assize wallet address {name}")
        return stated

    def stated_address(self, name: str) -> str | None:
        """Returns the address that a keystore states, or None; raises ``Misconfigured`` as ``address_of``."""
        from eth_utils.address import to_checksum_address  # takes as long as all that --help imports

        keystore = self._load(name)
        if "address" not in keystore and "crypto" in keystore:
            return None
        try:
            return str(to_checksum_address(keystore["address"]))
        except (KeyError, ValueError, TypeError) as error:
            raise Misconfigured(f"{self._place(name)} is not a version 3 keystore") from error

    def _place(self, name: str) -> Path:
        """Returns the file of a keystore: one of its own, Foundry's of that name, or ``name`` if that is a file."""
        if os.sep in name:
            return Path(name)
        own = self._path(name)
        places = (own, self.directory / name, foundry_directory() / name, foundry_directory() / own.name)
        return next((place for place in places if place.is_file()), own)

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise Misconfigured(
                f"invalid keystore name {name!r}: expected letters, digits, dots, dashes and underscores"
            )
        return self.directory / f"{name}.json"

    def _load(self, name: str) -> dict[str, Any]:
        path = self._place(name)
        try:
            loaded = json.loads(path.read_text())
        except FileNotFoundError:
            if os.sep in name:
                raise Misconfigured(f"no keystore file {path}") from None
            have = ", ".join(self.names()) or "none"
            raise Misconfigured(
                f"no keystore {name} in {self.directory} (there: {have}); make one with: assize wallet new {name}"
            ) from None
        except (OSError, ValueError) as error:
            raise Misconfigured(f"cannot read the keystore {path}: {error}") from error
        if not isinstance(loaded, dict):
            raise Misconfigured(f"{path} is not a version 3 keystore")
        return loaded


def default_directory() -> Path:
    """Returns the default directory of keystores: the environment's, else the profile's, else the home directory's."""
    told = os.environ.get(KEYSTORE_DIRECTORY_VARIABLE) or Profile.current().wallet().get("keystore_directory")
    return Path(told) if told else Path.home() / ".assize" / "keystores"


def foundry_directory() -> Path:
    """Returns the directory in which Foundry keeps keystores."""
    return Path.home() / ".foundry" / "keystores"


def read_password(password_file: Path | None, prompt: str = "password") -> str:
    """Reads the password from the file's first line, else from the terminal.

    Raises:
        Misconfigured: the file cannot be read or is empty, or there is no terminal.
    """
    if password_file is None:
        return _ask_password(prompt)
    try:
        lines = password_file.read_text().splitlines()
    except (OSError, ValueError) as error:
        raise Misconfigured(f"cannot read the password file {password_file}: {error}") from error
    if not lines or not lines[0]:
        raise Misconfigured(f"the password file {password_file} is empty")
    return lines[0]


def _ask_password(prompt: str) -> str:
    if not os.isatty(0):
        raise Misconfigured("cannot ask for the password without a terminal; give --password-file")
    return getpass.getpass(f"{prompt}: ")


def _write_private(path: Path, text: str) -> None:
    """Creates a file that only its owner can read; never replaces a file, since that would lose a key."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.parent.chmod(0o700)
        temporary = path.with_suffix(f".{os.getpid()}.part")
        try:
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except FileExistsError:
        raise Misconfigured(f"there is already a keystore {path.stem} in {path.parent}; choose another name") from None
    except OSError as error:
        raise Misconfigured(f"cannot write the keystore {path}: {error.strerror}") from error
