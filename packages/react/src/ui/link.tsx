import type { AnchorHTMLAttributes, Ref } from "react";
import { Button } from "./button.tsx";

/** A view of the app: where it is, and how the app goes to it without loading a page. */
export interface LinkTarget {
  /** Undefined: the app has no addresses, and the link is a button. */
  readonly href?: string;
  readonly open: () => void;
}

export interface LinkProps extends AnchorHTMLAttributes<HTMLAnchorElement> {
  readonly ref?: Ref<HTMLAnchorElement>;
  readonly to: LinkTarget;
}

/** A click with a modifier is the browser's. */
export function Link({ to: { href, open }, onClick, children, ...rest }: LinkProps) {
  if (href === undefined) {
    return (
      <Button look="plain" onClick={open} title={rest.title}>
        {children}
      </Button>
    );
  }
  return (
    <a
      href={href}
      onClick={(event) => {
        onClick?.(event);
        if (event.defaultPrevented || event.button !== 0) return;
        if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
        event.preventDefault();
        open();
      }}
      {...rest}
    >
      {children}
    </a>
  );
}
