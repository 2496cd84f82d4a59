"""Changes as an audit shows them."""

from gossamer.storage.audit import AuditedChange


def test_the_line_of_a_change_has_its_details_as_names_with_json_values() -> None:
    details = {"settings": {"LOG_LEVEL": "INFO"}, "priority": 1.5, "version": None, "spider": "it's\n"}
    change = AuditedChange(actor="ci", origin="10.0.0.1", action="job.create", subject="shop/1", details=details)
    facts = r'settings={"LOG_LEVEL": "INFO"} priority=1.5 version=null spider="it' + "'" + r's\n"'
    assert change.line == f"job.create shop/1 by ci from 10.0.0.1 {facts}"
    assert (
        AuditedChange(actor="local", action="job.stop", subject="1").line
        == "job.stop 1 by local from an unknown address"
    )
