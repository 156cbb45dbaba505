import pytest

pytest.register_assert_rewrite("tests.worker.asking", "tests.worker.house", "tests.worker.workers")
