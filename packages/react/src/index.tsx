export function SessionView() {
  return null;
}
