// Plays the scenario of tests/clients with the AWS SDK for Rust, and prints what it saw as JSON.
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::*;
use aws_sdk_sqs::Client;
use serde_json::{json, Map, Value};
use std::collections::HashMap;
use std::env::var;
use std::fmt::Debug;

const PREFIX: &str = "rust-";
type Attributes = HashMap<QueueAttributeName, String>;

fn new_client(secret: &str) -> Client {
    let (url, key) = (var("LEDGER_URL").unwrap(), var("LEDGER_ACCESS_KEY_ID").unwrap());
    // sqs-clients.md
    let config = aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(url)
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new(key, secret, None, None, "of the ledger"))
        .build();
    let sqs = Client::from_conf(config);
    // end
    sqs
}

/// The variant of the operation's error, and the code, of a call that must fail.
fn refused<T: Debug, E: ProvideErrorMetadata + Debug, R: Debug>(result: Result<T, SdkError<E, R>>) -> Value {
    let error = result.expect_err("it is refused");
    let error = error.as_service_error().expect("the service refuses it");
    let variant = format!("{error:?}");
    let variant = variant.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default();
    json!({"type": variant, "code": error.code()})
}

struct Player {
    sqs: Client,
    errors: Map<String, Value>,
    saw: Map<String, Value>,
}

impl Player {
    fn see(&mut self, what: &str, value: Value) {
        self.saw.insert(what.into(), value);
    }

    fn note(&mut self, label: &str, error: Value) {
        self.errors.insert(label.into(), error);
    }

    async fn made(&self, name: &str, attributes: Attributes) -> String {
        let name = format!("{PREFIX}{name}");
        let answer = self.sqs.create_queue().queue_name(name).set_attributes(Some(attributes)).send().await.unwrap();
        answer.queue_url.unwrap()
    }

    async fn attribute(&self, url: &str, name: QueueAttributeName) -> String {
        let asked = self.sqs.get_queue_attributes().queue_url(url).attribute_names(name.clone());
        asked.send().await.unwrap().attributes.unwrap()[&name].clone()
    }

    async fn receive(&self, url: &str, most: i32, wait: i32) -> Vec<Message> {
        let asked = self.sqs.receive_message().queue_url(url).max_number_of_messages(most).wait_time_seconds(wait);
        let asked = asked.message_system_attribute_names(MessageSystemAttributeName::All);
        asked.message_attribute_names("All").send().await.unwrap().messages.unwrap_or_default()
    }

    async fn change(&self, url: &str, handle: &str, seconds: i32) -> Option<Value> {
        let asked = self.sqs.change_message_visibility().queue_url(url).receipt_handle(handle);
        let answer = asked.visibility_timeout(seconds).send().await;
        answer.is_err().then(|| refused(answer))
    }

    async fn one_message(&mut self, url: &str) {
        let attribute = |kind: &str| MessageAttributeValue::builder().data_type(kind);
        let trace = MessageSystemAttributeValue::builder()
            .data_type("String")
            .string_value("Root=1-5759e988-bd862e3fe1be46a994272793");
        let bytes = attribute("Binary").binary_value(Blob::new(vec![0, 1, 254, 255]));
        let asked = self.sqs.send_message().queue_url(url).message_body("a body, ü and 漢");
        let asked = asked.message_attributes("text", attribute("String").string_value("väl").build().unwrap());
        let asked = asked.message_attributes("count", attribute("Number.int").string_value("42").build().unwrap());
        let asked = asked.message_attributes("bytes", bytes.build().unwrap());
        let name = MessageSystemAttributeNameForSends::AwsTraceHeader;
        let sent = asked.message_system_attributes(name, trace.build().unwrap()).send().await.unwrap();
        self.see(
            "sent",
            json!({
                "message_id": sent.message_id, "md5_of_body": sent.md5_of_message_body,
                "md5_of_attributes": sent.md5_of_message_attributes,
                "md5_of_system_attributes": sent.md5_of_message_system_attributes,
            }),
        );
        let first = self.receive(url, 1, 0).await.remove(0);
        let own = first.message_attributes.unwrap();
        let system = first.attributes.unwrap();
        let system: HashMap<&str, String> = system.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        self.see(
            "received",
            json!({
                "message_id": first.message_id, "body": first.body, "md5_of_body": first.md5_of_body,
                "md5_of_attributes": first.md5_of_message_attributes, "system": system,
                "text": own["text"].string_value(), "count": [own["count"].data_type(), own["count"].string_value()],
                "bytes": own["bytes"].binary_value().unwrap().as_ref(),
            }),
        );
        let handle = first.receipt_handle.unwrap();
        assert!(self.change(url, &handle, 2).await.is_none());
        let again = self.receive(url, 1, 20).await.remove(0);
        let again_handle = again.receipt_handle.unwrap();
        self.see(
            "long_poll",
            json!({
                "message_id": again.message_id, "has_new_handle": again_handle != handle,
                "receive_count": again.attributes.unwrap()[&MessageSystemAttributeName::ApproximateReceiveCount],
            }),
        );
        assert!(self.change(url, &again_handle, 0).await.is_none());
        let error = self.change(url, &again_handle, 5).await.unwrap();
        self.note("not_in_flight", error);
        let last = self.receive(url, 1, 0).await.remove(0).receipt_handle.unwrap();
        self.sqs.delete_message().queue_url(url).receipt_handle(last).send().await.unwrap();
        let counts = [
            self.attribute(url, QueueAttributeName::ApproximateNumberOfMessages).await,
            self.attribute(url, QueueAttributeName::ApproximateNumberOfMessagesNotVisible).await,
        ];
        self.see("after_delete", json!(counts));
    }

    async fn batches(&mut self, url: &str) {
        let entries = vec![entry("one", "1", None), entry("late", "2", Some(901)), entry("three", "3", None)];
        let sent = self.sqs.send_message_batch().queue_url(url).set_entries(Some(entries)).send().await.unwrap();
        let ids: Vec<&str> = sent.successful.iter().map(|one| one.id()).collect();
        self.see("send_batch", outcome(ids, &sent.failed));
        let messages = self.receive(url, 10, 0).await;
        let mut bodies: Vec<&str> = messages.iter().filter_map(|one| one.body()).collect();
        bodies.sort();
        self.see("batch_bodies", json!(bodies));
        let handles = messages.iter().filter_map(|one| one.receipt_handle()).chain(["none"]);
        let (mut changes, mut deletes) = (vec![], vec![]);
        for (number, handle) in handles.enumerate() {
            let change = ChangeMessageVisibilityBatchRequestEntry::builder().id(number.to_string());
            changes.push(change.receipt_handle(handle).visibility_timeout(60).build().unwrap());
            let delete = DeleteMessageBatchRequestEntry::builder().id(number.to_string());
            deletes.push(delete.receipt_handle(handle).build().unwrap());
        }
        let asked = self.sqs.change_message_visibility_batch().queue_url(url).set_entries(Some(changes));
        let changed = asked.send().await.unwrap();
        let ids = changed.successful.iter().map(|one| one.id()).collect();
        self.see("change_batch", outcome(ids, &changed.failed));
        let asked = self.sqs.delete_message_batch().queue_url(url).set_entries(Some(deletes));
        let deleted = asked.send().await.unwrap();
        let ids = deleted.successful.iter().map(|one| one.id()).collect();
        self.see("delete_batch", outcome(ids, &deleted.failed));
    }

    async fn errors(&mut self, url: &str) {
        let sqs = self.sqs.clone();
        let batch = |entries| sqs.send_message_batch().queue_url(url).set_entries(Some(entries)).send();
        let eleven = (0..11).map(|number| entry(&number.to_string(), "1", None)).collect();
        let same = vec![entry("one", "1", None), entry("one", "1", None)];
        self.note("no_queue", refused(sqs.get_queue_url().queue_name("nowhere").send().await));
        let other = sqs.create_queue().queue_name(format!("{PREFIX}standard"));
        let other = other.attributes(QueueAttributeName::DelaySeconds, "7");
        self.note("queue_exists", refused(other.send().await));
        self.note("no_handle", refused(sqs.delete_message().queue_url(url).receipt_handle("none").send().await));
        self.note("empty_batch", refused(batch(vec![]).await));
        self.note("same_ids", refused(batch(same).await));
        self.note("too_many", refused(batch(eleven).await));
        self.note("no_content", refused(sqs.send_message().queue_url(url).message_body("\u{1}").send().await));
        let unknown = sqs.set_queue_attributes().queue_url(url).attributes("Nothing".into(), "1");
        self.note("no_such_attribute", refused(unknown.send().await));
        sqs.purge_queue().queue_url(url).send().await.unwrap();
        self.note("purged", refused(sqs.purge_queue().queue_url(url).send().await));
        self.note("wrong_secret", refused(new_client("another secret").list_queues().send().await));
    }

    async fn fifo(&mut self) {
        let attributes = [(QueueAttributeName::FifoQueue, "true"), (QueueAttributeName::ContentBasedDeduplication, "true")];
        let url = self.made("of-order.fifo", attributes.map(|(name, value)| (name, value.into())).into()).await;
        let (mut numbers, mut ids) = (vec![], vec![]);
        for body in ["a1", "a2", "b1", "a1"] {
            let asked = self.sqs.send_message().queue_url(&url).message_body(body).message_group_id(&body[..1]);
            let sent = asked.send().await.unwrap();
            numbers.push(sent.sequence_number);
            ids.push(sent.message_id);
        }
        let error = refused(self.sqs.send_message().queue_url(&url).message_body("of none").send().await);
        self.note("no_group", error);
        let messages = self.receive(&url, 10, 0).await;
        let received: Vec<Value> = messages
            .iter()
            .map(|one| {
                let known = one.attributes().unwrap();
                let group = &known[&MessageSystemAttributeName::MessageGroupId];
                json!([group, one.body(), known[&MessageSystemAttributeName::SequenceNumber]])
            })
            .collect();
        let left = self.receive(&url, 10, 0).await.len();
        self.see(
            "fifo",
            json!({"sequence_numbers": numbers, "message_ids": ids, "received": received, "while_in_flight": left}),
        );
    }

    async fn dead_letters(&mut self) {
        let dead = self.made("dead", Attributes::new()).await;
        let arn = self.attribute(&dead, QueueAttributeName::QueueArn).await;
        let policy = json!({"deadLetterTargetArn": arn, "maxReceiveCount": "1"}).to_string();
        let source = self.made("source", [(QueueAttributeName::RedrivePolicy, policy)].into()).await;
        self.sqs.send_message().queue_url(&source).message_body("poison").send().await.unwrap();
        let handle = self.receive(&source, 1, 0).await.remove(0).receipt_handle.unwrap();
        assert!(self.change(&source, &handle, 0).await.is_none());
        let third = self.receive(&source, 1, 0).await.len();
        let message = self.receive(&dead, 1, 20).await.remove(0);
        assert!(self.change(&dead, message.receipt_handle().unwrap(), 0).await.is_none());
        let sources = self.sqs.list_dead_letter_source_queues().queue_url(&dead).send().await.unwrap().queue_urls;
        let task = self.sqs.start_message_move_task().source_arn(&arn).send().await.unwrap();
        let tasks = self.sqs.list_message_move_tasks().source_arn(&arn).send().await.unwrap();
        let back = self.receive(&source, 1, 20).await.remove(0);
        let seen = json!({
            "received_once_more": third, "body": message.body, "sources": names(&sources),
            "source_arn": message.attributes.unwrap()[&MessageSystemAttributeName::DeadLetterQueueSourceArn],
            "expected_arn": self.attribute(&source, QueueAttributeName::QueueArn).await,
            "has_task_handle": task.task_handle.is_some(), "tasks": tasks.results().len(), "moved_back": back.body,
        });
        self.see("dead_letters", seen);
    }

    async fn queues(&mut self, url: &str) {
        let asked = self.sqs.list_queues().queue_name_prefix(PREFIX).max_results(2);
        let (mut pages, mut found) = (asked.into_paginator().send(), vec![]);
        while let Some(page) = pages.next().await {
            found.push(names(page.unwrap().queue_urls()));
        }
        self.see("pages", json!(found));
        self.sqs.tag_queue().queue_url(url).tags("team", "data").tags("cost", "ä").send().await.unwrap();
        self.sqs.untag_queue().queue_url(url).tag_keys("team").send().await.unwrap();
        let tags = self.sqs.list_queue_tags().queue_url(url).send().await.unwrap().tags;
        self.see("tags", json!(tags));
        let of_environment = Client::new(&aws_config::load_defaults(BehaviorVersion::latest()).await);
        let asked = of_environment.get_queue_url().queue_name(format!("{PREFIX}standard"));
        let answer = asked.send().await.unwrap();
        self.see("of_environment", json!(answer.queue_url));
        self.sqs.delete_queue().queue_url(url).send().await.unwrap();
        let error = refused(self.sqs.send_message().queue_url(url).message_body("late").send().await);
        self.note("deleted_queue", error);
    }
}

fn entry(id: &str, body: &str, delay: Option<i32>) -> SendMessageBatchRequestEntry {
    let entry = SendMessageBatchRequestEntry::builder().id(id).message_body(body).set_delay_seconds(delay);
    entry.build().unwrap()
}

fn outcome(successful: Vec<&str>, failed: &[BatchResultErrorEntry]) -> Value {
    let failed: Vec<Value> = failed
        .iter()
        .map(|one| json!({"id": one.id(), "code": one.code(), "sender_fault": one.sender_fault()}))
        .collect();
    json!({"successful": successful, "failed": failed})
}

fn names(urls: &[String]) -> Vec<String> {
    urls.iter().filter_map(|url| url.rsplit('/').next()).map(String::from).collect()
}

#[tokio::main]
async fn main() {
    let sqs = new_client(&var("LEDGER_SECRET_ACCESS_KEY").unwrap());
    let mut player = Player { sqs, errors: Map::new(), saw: Map::new() };
    let url = player.made("standard", [(QueueAttributeName::VisibilityTimeout, "30".into())].into()).await;
    player.see("queue_url", json!(url));
    player.one_message(&url).await;
    player.batches(&url).await;
    player.errors(&url).await;
    player.fifo().await;
    player.dead_letters().await;
    player.queues(&url).await;
    let errors = Value::Object(player.errors.clone());
    player.see("errors", errors);
    println!("{}", Value::Object(player.saw));
}
