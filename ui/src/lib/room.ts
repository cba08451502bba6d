/**
 * Tells how high an element is, pixels, whenever that changes: after the browser has laid the page out, where asking at once would
 * have it laid out twice.
 */
export function room(tell: (height: number) => void): (element: HTMLElement) => () => void {
  return (element) => {
    const watched = new ResizeObserver(() => tell(element.clientHeight));
    watched.observe(element);
    return () => watched.disconnect();
  };
}
