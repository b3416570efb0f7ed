package auth

// reviewQueue is a heap of tokens by when they are due.
type reviewQueue []*reviewed

func (q reviewQueue) Len() int           { return len(q) }
func (q reviewQueue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q reviewQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements heap.Interface.
func (q *reviewQueue) Push(x any) {
	known, _ := x.(*reviewed)
	known.index = len(*q)
	*q = append(*q, known)
}

// Pop implements heap.Interface.
func (q *reviewQueue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
