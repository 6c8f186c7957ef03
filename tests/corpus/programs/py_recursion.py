class Node:
    def __init__(self, parent):
        self.parent = parent

    def depth(self):
        return 1 + self.parent.depth()


root = Node(None)
root.parent = root
print(root.depth())
