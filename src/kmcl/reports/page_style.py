"""The style sheet of a page: light and dark, phone, desktop and paper."""

from __future__ import annotations

CSS = """
:root{--ink:#1f2328;--soft:#57606a;--paper:#ffffff;--ground:#f6f8fa;--line:#d8dee4;--accent:#0072b2;
--warn:#fff4d6;--warn-ink:#5c4300}
@media (prefers-color-scheme:dark){:root{--ink:#dfe3e8;--soft:#9da7b3;--paper:#171b21;--ground:#0e1116;
--line:#353c45;--accent:#6cb8e8;--warn:#3a2f12;--warn-ink:#f3dfa6}}
*{box-sizing:border-box}
html{scroll-behavior:smooth;-webkit-text-size-adjust:100%}
body{margin:0;background:var(--ground);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
header,main,footer{max-width:76rem;margin:0 auto;padding:0 1rem}
header{padding-top:1.5rem}
h1{font-size:1.7rem;line-height:1.2;margin:0 0 .3rem;overflow-wrap:anywhere}
h2{font-size:1.3rem;margin:0 0 .7rem}
h3{font-size:1.05rem;margin:1.4rem 0 .5rem}
h4{font-size:.9rem;margin:.6rem 0 .3rem;font-weight:600}
header p,footer p{color:var(--soft);margin:.2rem 0;overflow-wrap:anywhere}
nav ul{display:flex;flex-wrap:wrap;gap:.3rem .5rem;list-style:none;margin:.9rem 0 1rem;padding:0}
nav a{display:block;padding:.25rem .7rem;border:1px solid var(--line);border-radius:1rem;
background:var(--paper);color:var(--accent);text-decoration:none;font-size:.9rem}
nav a:hover,nav a:focus-visible{border-color:var(--accent)}
section{background:var(--paper);border:1px solid var(--line);border-radius:.6rem;padding:1.1rem;
margin:0 0 1.2rem}
section p{margin:.4rem 0 .8rem;max-width:52rem;overflow-wrap:anywhere}
.missing{background:var(--warn);color:var(--warn-ink);border-radius:.4rem;padding:.5rem .8rem}
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,27rem),1fr));gap:1.2rem 1.6rem;
margin:1rem 0;align-items:start}
figure{margin:0;min-width:0}
.figures .wide{grid-column:1/-1}
.figures img{display:block;width:100%;height:auto;max-width:36rem}
.figures .wide img{max-width:70rem;min-width:34rem}
figcaption{font-size:.88rem;color:var(--soft);margin:.35rem 0;overflow-wrap:anywhere}
.scroll{overflow-x:auto;max-width:100%}
details{margin:.4rem 0 .8rem}
summary{cursor:pointer;font-size:.9rem;color:var(--accent);padding:.2rem 0}
section>details>summary{font-weight:600;color:var(--ink)}
table{border-collapse:collapse;font-size:.86rem;font-variant-numeric:tabular-nums;margin:.3rem 0}
th,td{padding:.22rem .7rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top;
white-space:nowrap}
thead th{color:var(--soft);font-weight:600;white-space:normal;vertical-align:bottom}
tbody th{font-weight:500}
td.number,thead th:not(:first-child){text-align:right}
figure table{font-size:.8rem}
figure .scroll:has(table){max-height:22rem;overflow-y:auto}
.strip{margin:.2rem 0 .8rem}
.thumbnails{display:flex;flex-wrap:wrap;gap:.6rem}
.thumbnails figure{width:8.2rem}
.thumbnails img,.unreadable{display:block;width:100%;border-radius:.3rem;border:1px solid var(--line)}
.thumbnails img{image-rendering:auto}
.unreadable{aspect-ratio:1;display:grid;place-items:center;color:var(--soft);font-size:.85rem}
.thumbnails figcaption{font-size:.76rem;line-height:1.3;white-space:pre-line}
.thumbnails.large figure{width:auto;max-width:100%}
.thumbnails.large img{width:auto;max-width:100%}
footer{padding-bottom:2rem;font-size:.88rem}
@media (max-width:40rem){section{padding:.8rem;border-radius:0;margin-inline:-1rem;border-inline:0}
h1{font-size:1.35rem}.thumbnails:not(.large) figure{width:calc(33.3% - .4rem)}}
@media print{:root{--ink:#000;--soft:#333;--paper:#fff;--ground:#fff;--line:#bbb;--accent:#000}
body{font-size:10pt}nav{display:none}section{border:0;padding:0;break-before:auto}
figure,.strip,tr{break-inside:avoid}h2,h3,h4{break-after:avoid}.scroll{overflow:visible;max-height:none}
.figures{grid-template-columns:1fr 1fr}.figures .wide img{min-width:0;max-width:100%}
details:not([open]){display:none}}
""".replace("\n", "")
