import type { Content } from "./types/Content";

/** Pixels of the picture for each of the drawing: sharp on any screen and in print. */
const DENSITY = 3;

/** An SVG drawing as a PNG picture. */
export async function picture(svg: string, width: number, height: number): Promise<Content> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = width * DENSITY;
  canvas.height = height * DENSITY;
  canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
  const [, base64 = ""] = canvas.toDataURL("image/png").split(",");
  return { base64 };
}
