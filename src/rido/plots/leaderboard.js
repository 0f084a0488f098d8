
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const ascending = head.ariaSort ? head.ariaSort === "descending" : column === 0;
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.ariaSort = ascending ? "ascending" : "descending";
      const key = row => row.cells[column].dataset.value;
      const compare = (one, other) => column === 0
        ? one.cells[0].textContent.localeCompare(other.cells[0].textContent, undefined, { numeric: true })
        : Number(key(one)) - Number(key(other));
      body.append(...[...body.rows].sort((one, other) => (ascending ? 1 : -1) * compare(one, other)));
    });
  });
}
