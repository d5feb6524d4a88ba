// kfake as a process: it prints the addresses of its three brokers and serves until it is killed.
package main

import (
	"fmt"
	"log"
	"strings"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(1, "double"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Join(cluster.ListenAddrs(), ","))
	select {}
}
