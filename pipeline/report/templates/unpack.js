// Unpacks the chart library, and runs it.
const packed = Uint8Array.from(atob(document.getElementById("library").textContent), (one) => one.charCodeAt(0));
const library = new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip")));
document.head.append(Object.assign(document.createElement("script"), { textContent: await library.text() }));
