import { Component, type ReactNode } from "react";
import { Button } from "./ui/button.tsx";
import { Empty } from "./ui/empty.tsx";
import { visible } from "./ui/text.ts";

/**
 * Keeps the frame when a view fails. The service may have a newer page than this tab: then a part
 * that has not been loaded yet is gone, and loading the page again mends it.
 */
export class Broken extends Component<
  { readonly children: ReactNode },
  { readonly error: Error | undefined }
> {
  override state: { readonly error: Error | undefined } = { error: undefined };

  static getDerivedStateFromError(error: unknown): { readonly error: Error } {
    return { error: error instanceof Error ? error : new Error(String(error)) };
  }

  override render(): ReactNode {
    const { error } = this.state;
    if (error === undefined) return this.props.children;
    return (
      <Empty title="This view failed.">
        <p role="alert">{visible(error.message)}</p>
        <Button onClick={() => location.reload()}>Load the page again</Button>
      </Empty>
    );
  }
}
