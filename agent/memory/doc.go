// Package memory keeps what a node remembers over restarts of the agent: one small file in the state folder, written whole
// or not at all, and, read from the clean-ups' own journal, what those did. Whatever is wrong with the file or the disk is
// said in the log and costs memory alone: the node is read and reported all the same.
package memory
