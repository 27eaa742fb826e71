/** The name that a mistyped word was probably meant to be, for the message of a refusal. */
export function nearest(word: string, names: readonly string[]): string | undefined {
  const most = word.length < 5 ? 1 : Math.max(2, Math.floor(word.length / 5));
  let found: { readonly name: string; readonly edits: number } | undefined;
  for (const name of names) {
    if (Math.abs(name.length - word.length) > most) continue;
    const edits = editsBetween(word, name);
    if (edits <= most && edits < (found?.edits ?? Number.POSITIVE_INFINITY))
      found = { name, edits };
  }
  return found?.name;
}

/** The least number of letters to insert, leave out or replace. */
function editsBetween(left: string, right: string): number {
  let above = Array.from({ length: right.length + 1 }, (_, at) => at);
  for (let row = 1; row <= left.length; row += 1) {
    const line = [row];
    for (let column = 1; column <= right.length; column += 1) {
      const isSame = left[row - 1] === right[column - 1];
      const replaced = (above[column - 1] ?? 0) + (isSame ? 0 : 1);
      line.push(Math.min(replaced, (above[column] ?? 0) + 1, (line[column - 1] ?? 0) + 1));
    }
    above = line;
  }
  return above[right.length] ?? 0;
}
