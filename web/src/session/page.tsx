import { Empty } from "../ui/empty.tsx";

export function SessionPage({ id }: { readonly id: string }) {
  return <Empty title={id} />;
}
