"""The window opens after quiet, shuts at once, and never lets training run beside a person."""

from random import Random

from turnwise.schedule.window import QUIET_SECONDS, SensorOpinion, SensorReading, Window, WindowState, next_window

SLEEP = SensorReading("sleep hours", SensorOpinion.OPENS, "It is 02:00, within 23:00-07:00.")
REQUEST = SensorReading("gateway", SensorOpinion.CLOSES, "A request came 3 seconds ago.")
BROKEN = SensorReading("input", SensorOpinion.NONE, "xprintidle did not answer within 2 seconds.")


def test_it_opens_only_after_the_quiet_time():
    window = next_window(Window(), 0.0, [SLEEP], due=True, stopped=True)
    assert window.state is WindowState.IDLE_WAIT
    window = next_window(window, QUIET_SECONDS, [SLEEP], due=True, stopped=True)
    assert window.may_train


def test_a_request_in_sleep_hours_shuts_it_and_it_waits_for_the_trainer():
    window = next_window(Window(WindowState.TRAINING, 0.0), 90.0, [SLEEP, REQUEST], due=True, stopped=False)
    assert window == Window(WindowState.PAUSING)
    window = next_window(window, 91.0, [SLEEP, REQUEST], due=True, stopped=True)
    assert window == Window(WindowState.IDLE_WAIT)


def test_a_trainer_that_has_not_stopped_yet_is_waited_for_however_long_the_person_is_away_again():
    window = next_window(Window(WindowState.PAUSING, 0.0), 10 * QUIET_SECONDS, [SLEEP], due=True, stopped=False)
    assert window == Window(WindowState.PAUSING, 0.0)
    assert next_window(window, 11 * QUIET_SECONDS, [SLEEP], due=True, stopped=True).may_train


def test_a_broken_sensor_alone_opens_nothing():
    window = next_window(Window(), 0.0, [BROKEN], due=True, stopped=True)
    assert next_window(window, 1e6, [BROKEN], due=True, stopped=True).state is WindowState.IDLE_WAIT


def test_open_without_work_waits_and_begins_when_some_is_due():
    window = next_window(Window(WindowState.WINDOW_OPEN, 0.0), 99.0, [SLEEP], due=False, stopped=True)
    assert window.state is WindowState.WINDOW_OPEN
    assert next_window(window, 100.0, [SLEEP], due=True, stopped=True).may_train


def test_a_clock_that_went_back_begins_the_wait_anew():
    window = next_window(Window(WindowState.IDLE_WAIT, 500.0), 10.0, [SLEEP], due=True, stopped=True)
    assert window == Window(WindowState.IDLE_WAIT, 10.0)


def test_random_days_never_train_beside_a_person_and_always_train_when_allowed():
    for seed in range(100):
        random, window, now, quiet_from = Random(seed), Window(), 0.0, None
        for _ in range(1000):
            now += random.uniform(1, 60)
            readings = [reading for reading in (SLEEP, REQUEST, BROKEN) if random.random() < 0.3]
            if random.random() < 0.7:
                readings = [SLEEP]
            due, stopped = random.random() < 0.8, random.random() < 0.7
            before = window
            window = next_window(window, now, readings, due=due, stopped=stopped)
            away = SLEEP in readings and REQUEST not in readings
            quiet_from = (now if quiet_from is None else quiet_from) if away else None
            allowed = quiet_from is not None and now - quiet_from >= QUIET_SECONDS
            held_up = before.state is WindowState.PAUSING and not stopped
            assert window.may_train == (allowed and due and not held_up)
