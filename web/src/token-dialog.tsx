import { useEffect, useRef, useState, useSyncExternalStore } from "react";
import { giveToken, onTokenChange, openQuestion } from "./api/token.ts";
import { Button } from "./ui/button.tsx";
import { Dialog } from "./ui/dialog.tsx";
import "./token-dialog.css";

/** What a header can carry, and at most what the service reads of one (docs/security.md). */
const SENDABLE = /^[!-~]{1,8192}$/;

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
  const isSendable = SENDABLE.test(token);
  return (
    <Dialog title="Token" onClose={() => giveToken(undefined)}>
      <form
        className="token-dialog"
        onSubmit={(event) => {
          event.preventDefault();
          if (isSendable) giveToken(token);
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
        {token !== "" && !isSendable && (
          <p role="alert" className="token-dialog-refused">
            A token has no spaces, only ASCII characters, and at most 8,192 of them.
          </p>
        )}
        <div>
          <Button type="submit" look="primary" disabled={!isSendable}>
            Continue
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
