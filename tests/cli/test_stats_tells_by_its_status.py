"""`flask stats` ends with 1 where it prints a PROBLEM, and with 0 otherwise."""

import json

from database import clock
from sending.carrier_state import CarrierState


def test_the_exit_status_follows_the_problems(flask):
    assert flask("stats").exit_code == 0
    CarrierState.passed(clock.now(), {"twilio": []})
    CarrierState.update(trouble="no credit", trouble_since=clock.now()).execute()
    told = flask("stats")
    assert "PROBLEM: twilio has refused the account" in told.stdout
    assert told.exit_code == 1
    as_json = flask("stats", "--json")
    assert len(json.loads(as_json.stdout)["problems"]) == 1
    assert as_json.exit_code == 0, "a program reads the problems"
    CarrierState.update(trouble=None, trouble_since=None).execute()
    assert flask("stats").exit_code == 0
