import { useEffect, useRef, useState, useSyncExternalStore } from "react";
import { giveToken, onTokenChange, openQuestion } from "./api/token.ts";
import { Button } from "./ui/button.tsx";
import { Dialog } from "./ui/dialog.tsx";
import "./token-dialog.css";

/** Asks for a token while a call waits for one. */
export function TokenDialog() {
  const question = useSyncExternalStore(onTokenChange, openQuestion);
  if (question === undefined) return null;
  return <Ask wasRefused={question.refused !== undefined} />;
}

function Ask({ wasRefused }: { readonly wasRefused: boolean }) {
  const [text, setText] = useState("");
  const input = useRef<HTMLInputElement>(null);
  // After the dialog has opened, which puts the focus on its first button.
  useEffect(() => input.current?.focus(), []);
  const token = text.trim();
  return (
    <Dialog title="Token" onClose={() => giveToken(undefined)}>
      <form
        className="token-dialog"
        onSubmit={(event) => {
          event.preventDefault();
          if (token !== "") giveToken(token);
        }}
      >
        {wasRefused && (
          <p role="alert" className="token-dialog-refused">
            The service did not accept the token, or it has expired.
          </p>
        )}
        <label htmlFor="token">This service wants a token. It stays in this tab.</label>
        <input
          ref={input}
          id="token"
          type="password"
          autoComplete="off"
          spellCheck={false}
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
        <div>
          <Button type="submit" look="primary" disabled={token === ""}>
            Continue
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
