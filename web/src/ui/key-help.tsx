import { Dialog } from "./dialog.tsx";
import { useKeyGroups } from "./keyboard.ts";
import "./key-help.css";

const NAMES: Readonly<Record<string, string>> = {
  " ": "space",
  ArrowDown: "↓",
  ArrowUp: "↑",
  ArrowLeft: "←",
  ArrowRight: "→",
  Escape: "esc",
};

/** The title of the keys that every view has. */
export const FRAME = "Everywhere";

export function KeyHelp({ onClose }: { readonly onClose: () => void }) {
  const all = useKeyGroups().filter(({ bindings }) => bindings.length > 0);
  // The frame's own keys come last: a reader looks for those of the view.
  const groups = all.toSorted((a, b) => Number(a.title === FRAME) - Number(b.title === FRAME));
  return (
    <Dialog title="Keys" onClose={onClose}>
      {groups.map(({ title, bindings }) => (
        <section key={title} className="key-help">
          <h3>{title}</h3>
          <dl>
            {bindings.map(({ keys, does }) => (
              <div key={does}>
                <dt>
                  {keys.map((key) => (
                    <kbd key={key}>{NAMES[key] ?? key}</kbd>
                  ))}
                </dt>
                <dd>{does}</dd>
              </div>
            ))}
          </dl>
        </section>
      ))}
    </Dialog>
  );
}
