"""The page: nothing from elsewhere, nothing inline, and usable in a browser by mouse, keyboard and phone."""

import re
import shutil
from contextlib import contextmanager

import pytest
from serving import KEY, encode, noise, serve
from test_server import running

import equimetric as em
from equimetric.service.pages import ASSETS, HEADERS, read_asset


def test_pages_load_nothing_from_elsewhere_and_have_no_code_inside(client):
    for path in ("/", "/docs"):
        response = client.get(path)
        assert response.headers["content-security-policy"] == HEADERS["Content-Security-Policy"]
        assert response.headers["x-content-type-options"] == "nosniff"
        assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=|javascript:", response.text)
        addresses = re.findall(r'(?:src|href)="([^"]*)"', response.text)
        assert addresses
        for address in addresses:
            assert client.get(address).status_code == 200, address
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
    for name, kind in ASSETS.items():
        assert client.get(f"/assets/{name}").headers["content-type"].startswith(kind)
    assert client.get("/assets/index.html").status_code == 404
    assert client.get("/assets/..%2froutes.py").status_code == 404


def test_the_page_never_turns_text_into_markup():
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", read_asset("page.js"))


def test_the_reference_lists_every_endpoint_and_escapes_names(client, gallery_folder, model):
    text = client.get("/docs").text
    for path in client.get("/openapi.json").json()["paths"]:
        assert f"<code>{path}</code>" in text
    hostile = gallery_folder.rename(gallery_folder.with_name("<b>hostile"))
    with serve(hostile, model) as other:
        text = other.get("/docs").text
        assert "<b>hostile" not in text
        assert "&lt;b&gt;hostile" in text


@contextmanager
def browser_page(**options):
    """A page of headless Chromium, and everything that it complains about."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra service-tests)")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with playwright.sync_playwright() as driver:
        try:
            browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        except playwright.Error as error:
            pytest.skip(f"no Chromium can be started here: {str(error).splitlines()[0]}")
        page = browser.new_context(**options).new_page()
        page.complaints = []
        page.on("console", lambda message: page.complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("request", lambda request: page.complaints.append(request.url) if "127.0.0.1" not in request.url else 0)
        yield page
        browser.close()


DESKTOP = {"viewport": {"width": 1200, "height": 800}}
PHONE = {
    "viewport": {"width": 360, "height": 740},
    "is_mobile": True,
    "has_touch": True,
    "device_scale_factor": 2,
    "color_scheme": "dark",
}


@pytest.mark.slow
def test_a_photo_is_chosen_and_its_neighbours_are_shown(gallery_folder, photos):
    hostile = '<img src=x onerror="alert(1)">'
    em.Gallery.open(gallery_folder).remove(["class1/5.png"])
    for options in (DESKTOP, PHONE):
        with running(gallery_folder) as (_, address), browser_page(**options) as page:
            page.goto(address)
            page.get_by_text("items. Accepted is a distance below").wait_for()
            page.set_input_files("#photo", photos / "class0" / "0.png")
            page.locator("#verdict.known").wait_for()
            assert page.locator("#verdict").inner_text() == "class0"
            first = page.locator("#neighbours li").first
            assert first.locator(".id").inner_text() == "class0/0.png"
            assert first.locator(".score").inner_text() == "0.0000 accepted"
            assert "the threshold is" in first.locator(".scale").get_attribute("aria-label")
            page.wait_for_selector("#neighbours li img[src^='blob:']")
            assert first.locator("img").evaluate("picture => picture.naturalWidth") == 12
            page.select_option("#count", "5")
            page.locator("#neighbours li").nth(5).wait_for(state="detached")
            assert page.locator("#neighbours li").count() == 5
            wide = page.evaluate("() => document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide == 0, "nothing is cut off at the side"
            page.set_input_files("#photo", {"name": "x.jpg", "mimeType": "image/jpeg", "buffer": b"no image"})
            page.locator("#verdict.problem").wait_for()
            assert "no image that can be read" in page.locator("#verdict").inner_text()
            assert page.locator("#neighbours li").count() == 0
            if options is DESKTOP:
                form = {"id": hostile, "label": hostile, "image": file_of(noise(50))}
                assert page.request.post(f"{address}/gallery", multipart=form).status == 201
            page.set_input_files("#photo", file_of(noise(50)))
            page.locator("#verdict.known").wait_for()
            assert page.locator("#verdict").inner_text() == hostile
            assert page.locator("#neighbours li .name").first.inner_text() == hostile
            # A refused request is an error to the console of a browser, and so is a thumbnail that is not there.
            assert [one for one in page.complaints if "status of 4" not in one] == []


def file_of(pixels):
    return {"name": "x.png", "mimeType": "image/png", "buffer": encode(pixels)}


@pytest.mark.slow
def test_the_page_works_by_keyboard_drop_and_with_a_key(gallery_folder, photos, tmp_path):
    (tmp_path / "keys").write_text(KEY)
    with running(gallery_folder, "--key-file", tmp_path / "keys") as (_, address), browser_page(**DESKTOP) as page:
        page.goto(address)
        page.locator("#key-form").wait_for()
        page.keyboard.type("wrong key, long enough")
        page.keyboard.press("Enter")
        page.get_by_text("This key is not accepted").wait_for()
        page.locator("#key").fill(KEY)
        page.keyboard.press("Enter")
        page.get_by_text("items. Accepted is a distance below").wait_for()
        assert page.locator("#key-form").is_hidden()
        page.locator("body").press("Tab")
        assert page.evaluate("() => document.activeElement.id") == "photo"
        assert page.locator("#drop").evaluate("label => getComputedStyle(label).outlineStyle") == "solid"
        with page.expect_file_chooser() as chooser:
            page.keyboard.press("Enter")
        chooser.value.set_files(photos / "class1" / "1.png")
        page.locator("#verdict.known").wait_for()
        assert page.locator("#verdict").inner_text() == "class1"
        page.wait_for_selector("#neighbours li img[src^='blob:']")
        dropped = page.evaluate_handle(
            """bytes => {
                const data = new DataTransfer();
                data.items.add(new File([new Uint8Array(bytes)], "a.png", { type: "image/png" }));
                return data;
            }""",
            list((photos / "class0" / "2.png").read_bytes()),
        )
        page.dispatch_event("#drop", "drop", {"dataTransfer": dropped})
        page.get_by_text("class0", exact=True).first.wait_for()
        assert [one for one in page.complaints if "status of 4" not in one] == []
