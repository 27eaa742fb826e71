import { afterAll, beforeAll, vi } from "vitest";

/** The clients of AG-UI warn on the console: of each RUN_ERROR, and of each field that they strip. */
export function useQuietConsole(): void {
  beforeAll(() => {
    vi.spyOn(console, "warn").mockReturnValue();
    vi.spyOn(console, "error").mockReturnValue();
  });
  afterAll(() => {
    vi.restoreAllMocks();
  });
}
