/** A session as a view of the page: the address has its place, and its links go to other views. */
import { Session } from "@session-ledger/react/components/session/session";
import { useMemo } from "react";
import { navigate, sessionPath, usePlace } from "./router.ts";
import { SessionMenu } from "./sessions/menu.tsx";
import { linkTo } from "./ui/link.tsx";
import { showTitle } from "./ui/title.ts";
import { useCursor } from "./use-cursor.ts";

export function SessionPage({ id }: { readonly id: string }) {
  const [cursor, moveTo] = useCursor();
  const links = useMemo(
    () => ({
      session: (other: string, { at }: { readonly at?: string | undefined } = {}) =>
        linkTo(`${sessionPath(other)}${at === undefined ? "" : `?at=${at}`}`),
      compare: linkTo(`${sessionPath(id)}/compare`),
      all: linkTo("/"),
    }),
    [id],
  );
  return (
    <Session
      id={id}
      cursor={cursor}
      moveTo={moveTo}
      restart={reload}
      links={links}
      wanted={usePlace().query.get("message") ?? ""}
      menu={menuOf}
      onTitle={showTitle}
    />
  );
}

function menuOf(session: { readonly id: string; readonly name: string }) {
  return <SessionMenu session={session} onDelete={() => navigate("/")} />;
}

function reload(): void {
  location.reload();
}
