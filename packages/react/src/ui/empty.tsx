import type { ReactNode } from "react";
import "./empty.css";

/** Replaces an empty list: the reason, and what the reader can do. */
export function Empty({
  title,
  role,
  children,
}: {
  readonly title: string;
  readonly role?: "alert";
  readonly children?: ReactNode;
}) {
  return (
    <div className="empty" role={role}>
      <p className="empty-title">{title}</p>
      {children}
    </div>
  );
}
