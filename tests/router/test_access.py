from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from quiesce.errors import ConfigurationError, RequestRejected
from quiesce.router.access import ApiKeys
from quiesce.router.tenants import UNNAMED, KnownKey, digest_of


@pytest.mark.parametrize("keys", [("",), (" ",), ("good", "\t")])
def test_a_blank_key_is_a_configuration_error(keys: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError, match="--api-key is empty; leave it out to serve without a key"):
        ApiKeys(keys)


@pytest.mark.parametrize("header", [{}, {"authorization": "Bearer"}, {"authorization": "Bearer  "}])
def test_an_empty_token_never_matches(header: dict[str, str]) -> None:
    """Not even if the hash of nothing were among the known ones."""
    keys = ApiKeys(["good"])
    keys._known.append(KnownKey(digest_of(""), UNNAMED))
    with pytest.raises(RequestRejected) as caught:
        keys.check(Headers(header))
    assert caught.value.status == 401


def test_a_key_is_known_whatever_space_surrounds_it() -> None:
    ApiKeys([" good "]).check(Headers({"authorization": "Bearer good"}))
