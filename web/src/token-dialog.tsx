import { useEffect, useRef, useState, useSyncExternalStore } from "react";
import { giveToken, onTokenChange, openQuestion } from "./token.ts";
import { isToken } from "@session-ledger/react/internal/props";
import { Button } from "@session-ledger/react/components/ui/button";
import { Dialog } from "@session-ledger/react/components/ui/dialog";
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
  const token = text.trim().replace(/^Bearer\s+/i, "");
  const isFit = isToken(token);
  return (
    <Dialog title="Token" onClose={() => giveToken(undefined)}>
      <form
        className="token-dialog"
        onSubmit={(event) => {
          event.preventDefault();
          if (isFit) giveToken(token);
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
        {token !== "" && !isFit && (
          <p role="alert" className="token-dialog-refused">
            A token has no spaces, only ASCII characters, and at most 8,192 of them.
          </p>
        )}
        <div>
          <Button type="submit" look="primary" disabled={!isFit}>
            Continue
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
