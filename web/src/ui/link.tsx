import {
  Link as PlainLink,
  type LinkProps as PlainProps,
  type LinkTarget,
} from "@session-ledger/react/components/ui/link";
import { navigate } from "../router.ts";

export interface LinkProps extends Omit<PlainProps, "to"> {
  /** An address of the page. */
  readonly to: string;
}

/** Goes to an address of the page without loading it. */
export function Link({ to, ...rest }: LinkProps) {
  return <PlainLink to={linkTo(to)} {...rest} />;
}

export function linkTo(address: string): LinkTarget {
  return { href: address, open: () => navigate(address) };
}
