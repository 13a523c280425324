const word = event.target.value.toLowerCase();
for (const row of this.querySelectorAll(`tbody tr`)) row.style.display = row.textContent.toLowerCase().includes(word) ? `` : `none`;
