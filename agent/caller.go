package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// callerOnNode says who runs this program: its user, the user that logged in (proc/self/loginuid, which sudo and su leave as
// it is; 4294967295 where nobody did), and who called sudo.
func callerOnNode() string {
	words := []string{fmt.Sprintf("uid=%d", os.Getuid())}
	if login, err := os.ReadFile("/proc/self/loginuid"); err == nil {
		if uid := string(bytes.TrimSpace(login)); uid != "" && uid != "4294967295" {
			words = append(words, "login_uid="+uid)
		}
	}
	if user, found := os.LookupEnv("SUDO_USER"); found && user != "" {
		words = append(words, "sudo_user="+user)
	}
	return strings.Join(words, " ")
}
