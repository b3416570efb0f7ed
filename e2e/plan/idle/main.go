// Command idle does nothing until it is told to end. Tests run copies of it under the names of other programs, whose mere
// presence is what matters.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	<-ended
}
