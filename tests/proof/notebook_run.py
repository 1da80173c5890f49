"""Runs the cells that standard input has (JSON) in a notebook by nbclient; prints each cell's outputs as JSON."""

import json
import sys

import nbformat
from nbclient import NotebookClient

cells = [nbformat.v4.new_code_cell(cell, metadata={"tags": ["raises-exception"]}) for cell in json.load(sys.stdin)]
notebook = nbformat.v4.new_notebook(cells=cells)
updates = []


class Client(NotebookClient):
    """A client that keeps each view that is renewed."""

    def output(self, outs, msg, display_id, cell_index):
        if msg["msg_type"] == "update_display_data":
            updates.append((cell_index, msg["content"]["data"]))
        return super().output(outs, msg, display_id, cell_index)

    def process_message(self, msg, cell, cell_index):
        if msg["msg_type"] == "update_display_data":
            updates.append((cell_index, msg["content"]["data"]))
        return super().process_message(msg, cell, cell_index)


Client(notebook, timeout=120, kernel_name="python3").execute()
json.dump({"outputs": [cell.outputs for cell in notebook.cells], "updates": updates}, sys.stdout)
