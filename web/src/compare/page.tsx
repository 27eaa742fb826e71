import { Empty } from "../ui/empty.tsx";

export function ComparePage({ id }: { readonly id: string }) {
  return <Empty title={id} />;
}
