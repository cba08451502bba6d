import { Channel, invoke } from "@tauri-apps/api/core";
import { listen } from "@tauri-apps/api/event";
import { getCurrentWebview } from "@tauri-apps/api/webview";
import { look } from "../look.svelte";
import type { Shell } from "./backend";

/** The desktop app: `src-tauri/src/commands.rs` is its other side. */
export const tauri: Shell = {
  call: (call, language, onNews) => invoke("call", { call, language, news: new Channel<unknown>(onNews) }),
  chooseFolder: () => invoke("choose_folder", { language: look.language }),
  chooseFiles: () => invoke("choose_files", { language: look.language }),
  save: ({ name, content }) => invoke("save", { language: look.language, name, content }),
  copyText: (text) => navigator.clipboard.writeText(text),
  onDrop: (listener) =>
    getCurrentWebview().onDragDropEvent(({ payload }) => {
      if (payload.type === "drop") listener({ kind: "dropped", paths: payload.paths });
      else listener({ kind: payload.type === "leave" ? "left" : "over" });
    }),
  asking: null,
  notify: (title, text) => void invoke("notify", { title, text }),
  menu: {
    show: (menus) => invoke("set_menu", { language: look.language, menus }),
    onChosen: (listener) => listen<string>("menu", ({ payload }) => listener(payload)),
  },
  onOpen: (listener) => listen<string>("open", ({ payload }) => listener(payload)),
};
