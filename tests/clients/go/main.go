// Plays the scenario of tests/clients with the AWS SDK for Go v2, and prints what it saw as JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
)

const prefix = "go-"

type object = map[string]any

var ctx = context.Background()
var client = newClient(os.Getenv("LEDGER_SECRET_ACCESS_KEY"))
var seenErrors = object{}
var saw = object{"errors": seenErrors}

func newClient(secret string) *sqs.Client {
	key := os.Getenv("LEDGER_ACCESS_KEY_ID")
	// sqs-clients.md
	client := sqs.New(sqs.Options{
		BaseEndpoint: aws.String(os.Getenv("LEDGER_URL")),
		Region:       "us-east-1",
		Credentials:  credentials.NewStaticCredentialsProvider(key, secret, ""),
	})
	// end
	return client
}

// must returns a value, or ends the program with its error.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// refused notes the type and the code of the error of a call that must fail.
func refused(label string, err error) {
	if err == nil {
		panic(label + ": was not refused")
	}
	var api smithy.APIError
	if !errors.As(err, &api) {
		panic(err)
	}
	seenErrors[label] = object{"type": fmt.Sprintf("%T", api), "code": api.ErrorCode()}
}

func made(name string, attributes map[string]string) *string {
	given := &sqs.CreateQueueInput{QueueName: aws.String(prefix + name), Attributes: attributes}
	return must(client.CreateQueue(ctx, given)).QueueUrl
}

func attribute(url *string, name types.QueueAttributeName) string {
	given := &sqs.GetQueueAttributesInput{QueueUrl: url, AttributeNames: []types.QueueAttributeName{name}}
	return must(client.GetQueueAttributes(ctx, given)).Attributes[string(name)]
}

func receive(url *string, most int32, wait int32) []types.Message {
	return must(client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: url, MaxNumberOfMessages: most, WaitTimeSeconds: wait, MessageAttributeNames: []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
	})).Messages
}

func send(url *string, body string, group *string) (*sqs.SendMessageOutput, error) {
	return client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: url, MessageBody: &body, MessageGroupId: group})
}

func change(url *string, handle *string, seconds int32) error {
	given := &sqs.ChangeMessageVisibilityInput{QueueUrl: url, ReceiptHandle: handle, VisibilityTimeout: seconds}
	_, err := client.ChangeMessageVisibility(ctx, given)
	return err
}

func oneMessage(url *string) {
	sent := must(client.SendMessage(ctx, &sqs.SendMessageInput{
		QueueUrl:    url,
		MessageBody: aws.String("a body, ü and 漢"),
		MessageAttributes: map[string]types.MessageAttributeValue{
			"text":  {DataType: aws.String("String"), StringValue: aws.String("väl")},
			"count": {DataType: aws.String("Number.int"), StringValue: aws.String("42")},
			"bytes": {DataType: aws.String("Binary"), BinaryValue: []byte{0, 1, 254, 255}},
		},
		MessageSystemAttributes: map[string]types.MessageSystemAttributeValue{
			"AWSTraceHeader": {
				DataType: aws.String("String"), StringValue: aws.String("Root=1-5759e988-bd862e3fe1be46a994272793"),
			},
		},
	}))
	saw["sent"] = object{
		"message_id": sent.MessageId, "md5_of_body": sent.MD5OfMessageBody,
		"md5_of_attributes":        sent.MD5OfMessageAttributes,
		"md5_of_system_attributes": sent.MD5OfMessageSystemAttributes,
	}
	first := receive(url, 1, 0)[0]
	bytes := []int{}
	for _, one := range first.MessageAttributes["bytes"].BinaryValue {
		bytes = append(bytes, int(one))
	}
	count := first.MessageAttributes["count"]
	saw["received"] = object{
		"message_id": first.MessageId, "body": first.Body, "md5_of_body": first.MD5OfBody,
		"md5_of_attributes": first.MD5OfMessageAttributes, "system": first.Attributes,
		"text": first.MessageAttributes["text"].StringValue, "bytes": bytes,
		"count": []*string{count.DataType, count.StringValue},
	}
	must(0, change(url, first.ReceiptHandle, 2))
	again := receive(url, 1, 20)[0]
	saw["long_poll"] = object{
		"message_id": again.MessageId, "receive_count": again.Attributes["ApproximateReceiveCount"],
		"has_new_handle": *again.ReceiptHandle != *first.ReceiptHandle,
	}
	must(0, change(url, again.ReceiptHandle, 0))
	refused("not_in_flight", change(url, again.ReceiptHandle, 5))
	last := receive(url, 1, 0)[0]
	must(client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: last.ReceiptHandle}))
	saw["after_delete"] = []string{
		attribute(url, types.QueueAttributeNameApproximateNumberOfMessages),
		attribute(url, types.QueueAttributeNameApproximateNumberOfMessagesNotVisible),
	}
}

func failures(failed []types.BatchResultErrorEntry) []object {
	found := []object{}
	for _, one := range failed {
		found = append(found, object{"id": one.Id, "code": one.Code, "sender_fault": one.SenderFault})
	}
	return found
}

func batches(url *string) {
	sent := must(client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{
		QueueUrl: url,
		Entries: []types.SendMessageBatchRequestEntry{
			{Id: aws.String("one"), MessageBody: aws.String("1")},
			{Id: aws.String("late"), MessageBody: aws.String("2"), DelaySeconds: 901},
			{Id: aws.String("three"), MessageBody: aws.String("3")},
		},
	}))
	successful := []*string{}
	for _, one := range sent.Successful {
		successful = append(successful, one.Id)
	}
	saw["send_batch"] = object{"successful": successful, "failed": failures(sent.Failed)}
	bodies, handles := []string{}, []*string{}
	for _, one := range receive(url, 10, 0) {
		bodies, handles = append(bodies, *one.Body), append(handles, one.ReceiptHandle)
	}
	slices.Sort(bodies)
	saw["batch_bodies"] = bodies
	changes, deletes := []types.ChangeMessageVisibilityBatchRequestEntry{}, []types.DeleteMessageBatchRequestEntry{}
	for number, handle := range append(handles, aws.String("none")) {
		id := aws.String(fmt.Sprint(number))
		change := types.ChangeMessageVisibilityBatchRequestEntry{Id: id, ReceiptHandle: handle, VisibilityTimeout: 60}
		changes = append(changes, change)
		deletes = append(deletes, types.DeleteMessageBatchRequestEntry{Id: id, ReceiptHandle: handle})
	}
	given := &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: url, Entries: changes}
	changed := must(client.ChangeMessageVisibilityBatch(ctx, given))
	successful = []*string{}
	for _, one := range changed.Successful {
		successful = append(successful, one.Id)
	}
	saw["change_batch"] = object{"successful": successful, "failed": failures(changed.Failed)}
	deleted := must(client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: url, Entries: deletes}))
	successful = []*string{}
	for _, one := range deleted.Successful {
		successful = append(successful, one.Id)
	}
	saw["delete_batch"] = object{"successful": successful, "failed": failures(deleted.Failed)}
}

func refusals(url *string) {
	_, err := client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("nowhere")})
	refused("no_queue", err)
	_, err = client.CreateQueue(ctx, &sqs.CreateQueueInput{
		QueueName: aws.String(prefix + "standard"), Attributes: map[string]string{"DelaySeconds": "7"},
	})
	refused("queue_exists", err)
	_, err = client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: aws.String("none")})
	refused("no_handle", err)
	batch := func(entries []types.SendMessageBatchRequestEntry) error {
		_, err := client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: url, Entries: entries})
		return err
	}
	one := types.SendMessageBatchRequestEntry{Id: aws.String("one"), MessageBody: aws.String("1")}
	eleven := []types.SendMessageBatchRequestEntry{}
	for number := range 11 {
		entry := types.SendMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(number)), MessageBody: aws.String("1")}
		eleven = append(eleven, entry)
	}
	refused("empty_batch", batch([]types.SendMessageBatchRequestEntry{}))
	refused("same_ids", batch([]types.SendMessageBatchRequestEntry{one, one}))
	refused("too_many", batch(eleven))
	_, err = send(url, "\u0001", nil)
	refused("no_content", err)
	given := &sqs.SetQueueAttributesInput{QueueUrl: url, Attributes: map[string]string{"Nothing": "1"}}
	_, err = client.SetQueueAttributes(ctx, given)
	refused("no_such_attribute", err)
	must(client.PurgeQueue(ctx, &sqs.PurgeQueueInput{QueueUrl: url}))
	_, err = client.PurgeQueue(ctx, &sqs.PurgeQueueInput{QueueUrl: url})
	refused("purged", err)
	_, err = newClient("another secret").ListQueues(ctx, &sqs.ListQueuesInput{})
	refused("wrong_secret", err)
}

func fifo() {
	url := made("of-order.fifo", map[string]string{"FifoQueue": "true", "ContentBasedDeduplication": "true"})
	numbers, ids := []*string{}, []*string{}
	for _, one := range [][2]string{{"a", "a1"}, {"a", "a2"}, {"b", "b1"}, {"a", "a1"}} {
		sent := must(send(url, one[1], &one[0]))
		numbers, ids = append(numbers, sent.SequenceNumber), append(ids, sent.MessageId)
	}
	_, err := send(url, "of none", nil)
	refused("no_group", err)
	received := [][]string{}
	for _, one := range receive(url, 10, 0) {
		known := one.Attributes
		received = append(received, []string{known["MessageGroupId"], *one.Body, known["SequenceNumber"]})
	}
	saw["fifo"] = object{
		"sequence_numbers": numbers, "message_ids": ids, "received": received,
		"while_in_flight": len(receive(url, 10, 0)),
	}
}

func deadLetters() {
	dead := made("dead", nil)
	arn := attribute(dead, types.QueueAttributeNameQueueArn)
	policy := must(json.Marshal(object{"deadLetterTargetArn": arn, "maxReceiveCount": "1"}))
	source := made("source", map[string]string{"RedrivePolicy": string(policy)})
	must(send(source, "poison", nil))
	must(0, change(source, receive(source, 1, 0)[0].ReceiptHandle, 0))
	third := receive(source, 1, 0)
	message := receive(dead, 1, 20)[0]
	must(0, change(dead, message.ReceiptHandle, 0))
	given := &sqs.ListDeadLetterSourceQueuesInput{QueueUrl: dead}
	sources := names(must(client.ListDeadLetterSourceQueues(ctx, given)).QueueUrls)
	task := must(client.StartMessageMoveTask(ctx, &sqs.StartMessageMoveTaskInput{SourceArn: &arn}))
	tasks := must(client.ListMessageMoveTasks(ctx, &sqs.ListMessageMoveTasksInput{SourceArn: &arn}))
	saw["dead_letters"] = object{
		"received_once_more": len(third), "body": message.Body,
		"source_arn":   message.Attributes["DeadLetterQueueSourceArn"],
		"expected_arn": attribute(source, types.QueueAttributeNameQueueArn), "sources": sources,
		"has_task_handle": *task.TaskHandle != "", "tasks": len(tasks.Results),
		"moved_back": receive(source, 1, 20)[0].Body,
	}
}

func names(urls []string) []string {
	found := []string{}
	for _, url := range urls {
		found = append(found, path.Base(url))
	}
	return found
}

func queues(url *string) {
	given := &sqs.ListQueuesInput{QueueNamePrefix: aws.String(prefix), MaxResults: aws.Int32(2)}
	pages := [][]string{}
	for pager := sqs.NewListQueuesPaginator(client, given); pager.HasMorePages(); {
		pages = append(pages, names(must(pager.NextPage(ctx)).QueueUrls))
	}
	saw["pages"] = pages
	tags := map[string]string{"team": "data", "cost": "ä"}
	must(client.TagQueue(ctx, &sqs.TagQueueInput{QueueUrl: url, Tags: tags}))
	must(client.UntagQueue(ctx, &sqs.UntagQueueInput{QueueUrl: url, TagKeys: []string{"team"}}))
	saw["tags"] = must(client.ListQueueTags(ctx, &sqs.ListQueueTagsInput{QueueUrl: url})).Tags
	ofEnvironment := sqs.NewFromConfig(must(config.LoadDefaultConfig(ctx)))
	name := &sqs.GetQueueUrlInput{QueueName: aws.String(prefix + "standard")}
	saw["of_environment"] = must(ofEnvironment.GetQueueUrl(ctx, name)).QueueUrl
	must(client.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: url}))
	_, err := send(url, "late", nil)
	refused("deleted_queue", err)
}

func main() {
	url := made("standard", map[string]string{"VisibilityTimeout": "30"})
	saw["queue_url"] = url
	oneMessage(url)
	batches(url)
	refusals(url)
	fifo()
	deadLetters()
	queues(url)
	fmt.Println(string(must(json.Marshal(saw))))
}
