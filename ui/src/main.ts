import { mount } from "svelte";
import App from "./App.svelte";
import { tauri } from "./lib/backend/tauri";
import { Session } from "./lib/session.svelte";
import "./theme.css";

const target = document.getElementById("app");
if (target) mount(App, { target, props: { session: new Session(tauri) } });
