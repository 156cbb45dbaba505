from __future__ import annotations

import pytest

from quiesce.errors import ConfigurationError, RequestRejected
from quiesce.text.templates import ChatTemplate

USER = [{"role": "user", "content": "<b> & 'ü'"}]


def test_special_tokens_and_the_generation_prompt_are_visible() -> None:
    template = ChatTemplate("{{ bos_token }}{{ messages[0].content }}{{ add_generation_prompt }}", {"bos_token": "<s>"})
    assert template.render(USER) == "<s><b> & 'ü'True"


def test_tojson_escapes_nothing_that_a_prompt_wants() -> None:
    assert ChatTemplate("{{ messages | tojson }}", {}).render(USER) == '[{"role": "user", "content": "<b> & \'ü\'"}]'


def test_a_template_that_refuses_is_the_callers_fault() -> None:
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}", {})
    with pytest.raises(RequestRejected, match="roles must alternate") as caught:
        template.render(USER)
    assert caught.value.code == "invalid_messages"


@pytest.mark.parametrize(
    "source",
    ["{{ messages.append(1) }}", "{{ ''.__class__.__mro__ }}", "{{ messages[0].content.nothing() }}", "{{ 1 + 'a' }}"],
)
def test_the_sandbox_holds_and_mistakes_are_refused(source: str) -> None:
    """Templates come with models, so they are kept from reaching Python, and from changing what they are given."""
    with pytest.raises(RequestRejected):
        ChatTemplate(source, {}).render(USER)


def test_tags_that_published_templates_use() -> None:
    source = "{% for m in messages %}{% generation %}{{ m.role }}{% endgeneration %}{% break %}{% endfor %}"
    assert ChatTemplate(source, {}).render(USER) == "user"
    assert len(ChatTemplate("{{ strftime_now('%Y') }}", {}).render(USER)) == 4


def test_a_broken_template_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="does not compile"):
        ChatTemplate("{% for %}", {})
