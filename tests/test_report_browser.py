"""The report in a browser: it sorts, explains, switches, and asks nobody for anything."""

import json
import shutil

import pytest

from report_example import METHODS, example
from twinrank.experiments.report.report_page import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs Chromium and its driver"),
]


@pytest.fixture(scope="module")
def browser():
    webdriver = pytest.importorskip("selenium.webdriver")
    from selenium.common.exceptions import WebDriverException

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu"):
        options.add_argument(f"--{argument}")
    options.add_argument("--force-prefers-reduced-motion")  # what was scrolled to is there at once
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    try:
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    except WebDriverException as error:  # some containers let no browser run
        pytest.skip(f"Chromium doesn't start here: {error.msg}")
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    hostile = "<script>document.title = 'stolen'</script>"
    write_report(folder / "report.html", example(folder, (*METHODS, hostile)))
    return (folder / "report.html").as_uri()


@pytest.fixture
def page(browser, place):
    """The page, fresh and as wide as a screen; nothing may have been complained about since."""
    _resize(browser, 1400)
    browser.get(place)
    yield browser
    assert browser.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    }
    assert {url for url in asked if not url.startswith("data:")} <= {place}


def _resize(browser, width):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def _find(page, css):
    return page.find_elements("css selector", css)


def _column(page, table, number):
    script = "return [...document.querySelector(arguments[0]).tBodies[0].rows].map(" + (
        "r => r.cells[arguments[1]].dataset.value || r.cells[arguments[1]].textContent)"
    )
    return page.execute_script(script, table, number)


def test_tables_sort_by_click_and_by_key(page):
    heading = _find(page, ".explained thead th")[1]
    assert heading.get_attribute("aria-sort") == "descending"
    falling = _column(page, ".explained", 1)
    assert falling == sorted(falling, key=float, reverse=True)
    heading.find_element("css selector", "button").click()
    assert _column(page, ".explained", 1) == falling[::-1]
    assert heading.get_attribute("aria-sort") == "ascending"
    names = _find(page, ".explained thead button")[0]
    names.send_keys("\ue007")  # Enter
    assert _column(page, ".explained", 0) == sorted(_column(page, ".explained", 0), key=str.lower)
    assert heading.get_attribute("aria-sort") is None
    assert "Method, ascending" in page.execute_script(
        "return document.getElementById('sorted').textContent"
    )
    names.send_keys(" ")
    assert _column(page, ".explained", 0)[-1].startswith("<script>")
    page.execute_script("document.querySelector('.bars tbody').rows[1].cells[1].dataset.value = ''")
    missing = _column(page, ".bars", 0)[1]
    for _ in range(2):  # what has no value is last, whichever way
        _find(page, ".bars thead button")[1].click()
        assert _column(page, ".bars", 0)[-1] == missing
    times = [float(value) for value in _column(page, ".bars", 1)[:-1]]
    assert times == sorted(times)


def test_a_figure_is_explained_on_hover_and_focus(page):
    from selenium.webdriver import ActionChains, Keys

    tip = page.find_element("id", "tip")
    cells = _find(page, ".explained tbody td")
    assert not tip.is_displayed()
    ActionChains(page).move_to_element(cells[1]).perform()
    assert "p " in tip.text
    assert "interval" in tip.text
    _find(page, ".explained thead button")[-1].send_keys(Keys.TAB)
    ActionChains(page).send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN).perform()
    assert page.switch_to.active_element == cells[2]
    assert tip.text.replace("\n", "; ") == cells[2].get_attribute("data-tip")
    ActionChains(page).send_keys(Keys.ESCAPE).perform()
    assert not tip.is_displayed()


def test_pictures_are_seen(page):
    curves = _find(page, "section[aria-labelledby=curves] figure svg")
    assert len(curves) == 4
    for picture in curves + _find(page, "section[aria-labelledby=cutoffs] figure svg"):
        assert picture.size["width"] > 200
        assert picture.size["height"] > 100
    colour = "return getComputedStyle(arguments[0]).stroke"
    lines = _find(page, "section[aria-labelledby=curves] path[style*='--series-0']")
    assert page.execute_script(colour, lines[0]) == "rgb(47, 111, 171)"
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    assert page.execute_script(colour, lines[0]) != "rgb(47, 111, 171)"
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_method_can_be_seen_alone(page):
    button = _find(page, "[data-method='1']")[0]
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert len(_find(page, ".alone [data-series='1'].lit")) == 3  # one measure, two kinds
    assert not _find(page, "[data-series='0'].lit")
    button.click()
    assert not _find(page, ".alone")


def test_the_baseline_can_be_chosen(page):
    def shown():
        return [
            e.find_element("css selector", "h3").text for e in _find(page, ".gains:not([hidden])")
        ]

    assert shown() == [f"Against {METHODS[0]}"]
    page.find_element("id", "baseline").send_keys(METHODS[2][:4])
    assert shown() == [f"Against {METHODS[2]}"]


def test_queries_are_explored_by_key(page):
    from selenium.webdriver import Keys

    def box(name):
        return page.find_element("id", f"query-{name}")

    def gains():
        return [
            float(o.text.split()[1].replace("−", "-")) for o in _find(page, "#query-list option")
        ]

    def chosen(name):
        script = "return arguments[0].selectedOptions[0].textContent"
        return page.execute_script(script, box(name))

    assert gains() == sorted(gains())  # the largest losses first
    tables = _find(page, "#query-sides table")
    captions = [table.find_element("css selector", "caption").text for table in tables]
    assert captions[0].startswith(chosen("baseline"))
    assert captions[1].startswith(chosen("method"))
    assert len(_find(page, "#query-sides tbody tr")) == 20
    before = box("status").text
    assert chosen("list").split(":")[0] in before
    box("list").send_keys(Keys.ARROW_DOWN)
    assert box("status").text != before
    assert chosen("list").split(":")[0] in box("status").text
    moves = _find(page, "#query-sides td:last-child .unseen")
    assert any("up" in move.get_attribute("textContent") for move in moves)
    box("method").send_keys(chosen("baseline")[:4])  # the baseline makes room
    assert chosen("method") != chosen("baseline")
    assert gains() == sorted(gains())
    for region in _find(page, "#explorer [role=region]"):
        assert region.get_attribute("tabindex") == "0"
        assert region.get_attribute("aria-label")
    assert not _find(page, "#explorer b")  # markup in a feature's name stays text


@pytest.mark.parametrize("width", [400, 1400])
def test_the_page_does_not_scroll_sideways(page, width):
    _resize(page, width)
    assert page.execute_script("return document.documentElement.scrollWidth") <= width


def test_markup_in_a_name_stays_text(page):
    assert page.title == "Three methods"
    assert "<script>" in page.find_element("css selector", ".explained").text
