import { mount } from "svelte";
import App from "./App.svelte";
import Locked from "./Locked.svelte";
import { Backend } from "./lib/backend/backend";
import { http } from "./lib/backend/http";
import { tauri } from "./lib/backend/tauri";
import { look } from "./lib/look.svelte";
import { Session } from "./lib/session.svelte";
import "./theme.css";

const target = document.getElementById("app") ?? document.body;
look.begin();
const shell = "isTauri" in window ? tauri : await http();
if (shell) mount(App, { target, props: { session: new Session(new Backend(shell)) } });
else mount(Locked, { target });
