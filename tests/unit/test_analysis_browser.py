"""The HTML report in headless Chromium: it opens without a word in the console, sorts, filters, shows its evidence."""

import shutil

import pytest

from analysis import read, report, study
from tests import founding
from tests.synthetic import AUTOREGRESSIVE, Method, Workload, write

pytestmark = pytest.mark.chromium


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium whose every request to a network would fail."""
    from selenium import webdriver

    assert shutil.which("chromium"), "make chromium installs it"
    options = webdriver.ChromeOptions()
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "window-size=1400,1000", "proxy-server=127.0.0.1:9"):
        options.add_argument(f"--{argument}")
    options.binary_location = shutil.which("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two workloads, two tps, an attempt that was refused."""
    root = tmp_path_factory.mktemp("browser")

    def refuse(cell, rows):
        if cell["method"] == "ngram" and cell["repeat"] == 3:
            cell["validity"] = {"valid": False, "reasons": [{"code": "client_lag", "detail": "9 ms"}], "limits": {}}

    methods = [AUTOREGRESSIVE, Method("ngram", 2.0, 1.2), Method("eagle3", 3.0, 1.4)]
    write(root / "results", methods, [Workload("edit"), Workload("prose")], tp=(1, 4), repeats=4, edit=refuse)
    report.write(study.make(read(root / "results"), synthetic=True), root, ("html",))
    return root


@pytest.fixture
def page(browser, folder):
    browser.get(f"file://{folder}/report.html")
    return browser


def cells(page, table, column):
    """Texts of one column, as shown."""
    script = """
        const table = document.querySelector(`#table-${arguments[0]} table`);
        const heads = Array.from(table.tHead.rows[0].cells).map(one => one.textContent.trim());
        const at = heads.findIndex(head => head.startsWith(arguments[1]));
        const rows = Array.from(table.tBodies[0].rows).filter(row => !row.hidden);
        return rows.map(row => row.cells[at].textContent.trim());
    """
    return page.execute_script(script, table, column)


def press(page, table, column):
    for button in page.find_elements("css selector", f"#table-{table} th button"):
        if button.get_attribute("textContent").startswith(column):
            return page.execute_script("arguments[0].click()", button)
    raise AssertionError(f"no column {column}")


def test_it_opens_without_a_word_in_the_console(page):
    """Also under its own content security policy, and with every picture loaded."""
    assert page.get_log("browser") == []
    sizes = page.execute_script("return Array.from(document.images).map(image => image.naturalWidth)")
    assert sizes
    assert all(sizes)
    assert "SYNTHETIC" in page.find_element("css selector", ".banner").text


def test_a_table_sorts_by_number_both_ways(page):
    """'9.8' is less than '163', and what was not measured comes last."""
    press(page, "latency", "TPOT p50")
    up = [float(text.replace(",", "")) for text in cells(page, "latency", "TPOT p50")]
    press(page, "latency", "TPOT p50")
    down = [float(text.replace(",", "")) for text in cells(page, "latency", "TPOT p50")]
    assert up == sorted(up)
    assert down == up[::-1]


def test_a_table_sorts_by_text(page):
    """Methods in order, their rows with them."""
    press(page, "speedup", "method")
    methods = cells(page, "speedup", "method")
    assert methods == sorted(methods)


def test_filters_by_workload_and_tp(page):
    """Rows and figures of the others go away and come back."""
    from selenium.webdriver.support.select import Select

    everything = len(cells(page, "speedup", "workload"))
    Select(page.find_element("id", "workload")).select_by_visible_text("edit")
    assert set(cells(page, "speedup", "workload")) == {"edit"}
    Select(page.find_element("id", "tp")).select_by_visible_text("4")
    assert set(cells(page, "speedup", "TP")) == {"4"}
    assert not page.find_element("id", "speedup-lab1-smollm2-135m-tp1").is_displayed()
    assert page.find_element("id", "speedup-lab1-smollm2-135m-tp4").is_displayed()
    assert " of " in page.find_element("id", "shown").text
    for name in ("workload", "tp"):
        Select(page.find_element("id", name)).select_by_index(0)
    assert len(cells(page, "speedup", "workload")) == everything


def test_a_number_leads_to_its_cells_arguments_and_conditions(page):
    """One click: attempts with their folder names, engine arguments, the host's fingerprint."""
    button = page.find_element("css selector", "#table-speedup tbody tr:nth-child(3) button.cells")
    page.execute_script("arguments[0].click()", button)
    dialog = page.find_element("id", "details")
    assert dialog.is_displayed()
    text = dialog.get_attribute("textContent")
    for wanted in ("r0-20261129T120000Z", "engine and arguments", '"method": "ngram"', "conditions", '"synthetic"'):
        assert wanted in text
    dialog.find_element("css selector", ".close").click()
    assert not dialog.is_displayed()


def test_what_was_refused_is_visible(page):
    """With its reason, in the page's own table."""
    assert "client_lag: 9 ms" in page.find_element("id", "table-invalid").text


def test_the_founding_report_opens(browser, tmp_path):
    """Hundreds of cells and dozens of figures: seconds, and no word in the console. The screenshot is for looking."""
    root = founding.build(tmp_path / "results")
    report.write(study.make(read(root), synthetic=True), tmp_path, ("html",))
    browser.get(f"file://{tmp_path}/report.html")
    assert browser.get_log("browser") == []
    assert len(browser.find_elements("css selector", "figure")) > 20
    browser.save_screenshot(str(tmp_path / "report.png"))
    assert (tmp_path / "report.png").stat().st_size > 20_000
