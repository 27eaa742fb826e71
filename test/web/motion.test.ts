/** The page for people who want less motion. */
import { describe, expect, test } from "vitest";
import { useInspector } from "../support/inspector.ts";
import { needs } from "../support/tools.ts";
import { useService } from "../support/use-service.ts";

const inspector = useInspector();
const { service } = useService();

/** As the timeline and the charts read the colours for their canvas. */
const READ_COLOUR = `(() => {
  const probe = document.createElement("span");
  document.body.append(probe);
  getComputedStyle(probe).color;
  probe.style.color = "rgb(1, 2, 3)";
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
})()`;

// Bug: every bar of the timeline was black for them, because each change of a colour was a transition.
describe("without motion in chromium", needs("chromium"), () => {
  test("regression: a new colour counts at once", async () => {
    await inspector.visit(`http://${service.httpAddress}/`, {}, async (page) => {
      expect(await page.evaluate(READ_COLOUR)).toBe("rgb(1, 2, 3)");
    });
  });
});
