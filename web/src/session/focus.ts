/** For `ref` of a field that a press of the reader has opened. */
export function focus(field: HTMLElement | null): void {
  field?.focus();
}
