"""What somebody who publishes a result needs: an entry to cite it, and a script that measures it again."""
